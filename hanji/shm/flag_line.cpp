#include "hanji/shm/internal/flag_line.h"

#include <bit>

namespace hanji::shm::internal {
namespace {

constexpr size_t kFactorWord = 6;

bool has_factor(const Descriptor& d) { return d.op == schedule::ReduceOp::kPremulSum; }

constexpr uint64_t byte_of(uint64_t word, int index) { return word >> (8 * index) & 0xff; }

}  // namespace

Words encode(const Descriptor& d) {
  Words words{};
  const uint64_t elements = d.in_line ? static_cast<uint64_t>(d.count) : 0;
  words[0] = static_cast<uint64_t>(d.routine) | static_cast<uint64_t>(d.dtype) << 8 |
             static_cast<uint64_t>(d.op) << 16 | static_cast<uint64_t>(d.in_line) << 24 |
             static_cast<uint64_t>(d.uneven) << 25 | static_cast<uint64_t>(d.root & 0xff) << 32 |
             elements << 40 | d.operation << 48;
  words[1] = d.tag;
  words[2] = d.call_site | static_cast<uint64_t>(d.fingerprint) << 32;
  if (!d.in_line) {
    words[3] = static_cast<uint64_t>(d.count);
    words[4] = static_cast<uint64_t>(d.input);
    words[5] = static_cast<uint64_t>(d.output);
    words[6] = static_cast<uint64_t>(d.stride);
  }
  if (has_factor(d)) words[kFactorWord] = std::bit_cast<uint64_t>(d.factor);
  return words;
}

Descriptor decode(const Words& words) {
  Descriptor d;
  d.routine = static_cast<schedule::Routine>(byte_of(words[0], 0));
  d.dtype = static_cast<DType>(byte_of(words[0], 1));
  d.op = static_cast<schedule::ReduceOp>(byte_of(words[0], 2));
  d.in_line = (byte_of(words[0], 3) & 1) != 0;
  d.uneven = (byte_of(words[0], 3) & 2) != 0;
  d.root = static_cast<int>(byte_of(words[0], 4));
  d.operation = words[0] >> 48;
  d.tag = words[1];
  d.call_site = static_cast<uint32_t>(words[2]);
  d.fingerprint = static_cast<uint32_t>(words[2] >> 32);
  if (d.in_line) {
    d.count = static_cast<int64_t>(byte_of(words[0], 5));
  } else {
    d.count = static_cast<int64_t>(words[3]);
    d.input = static_cast<int64_t>(words[4]);
    d.output = static_cast<int64_t>(words[5]);
    if (!has_factor(d)) d.stride = static_cast<int64_t>(words[6]);
  }
  if (has_factor(d)) d.factor = std::bit_cast<double>(words[kFactorWord]);
  return d;
}

}  // namespace hanji::shm::internal
