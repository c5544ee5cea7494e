#include "hanji/data/order.h"

#include <algorithm>
#include <bit>

#include "hanji/base/random.h"

namespace hanji::data {
namespace {

// Keeps the order's draws apart from every other use of the same seed ("order" in ASCII).
constexpr uint64_t kDomain = 0x6f72646572;
// A network on fewer bits has too few round functions to reach most permutations.
constexpr int kLeastHalfBits = 4;

}  // namespace

Permutation::Permutation(uint64_t seed, uint64_t epoch, int64_t count) : count_(count) {
  const uint64_t key = base::mix(base::mix(seed, kDomain), epoch);
  for (int round = 0; round < kRounds; ++round) keys_[round] = base::mix(key, round);
  const int bits = std::bit_width(static_cast<uint64_t>(count - 1));
  half_bits_ = std::max(kLeastHalfBits, (bits + 1) / 2);
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (base::mix(key, right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator()(int64_t index) const {
  uint64_t value = static_cast<uint64_t>(index);
  do {
    value = encrypt(value);
  } while (value >= static_cast<uint64_t>(count_));
  return static_cast<int64_t>(value);
}

}  // namespace hanji::data
