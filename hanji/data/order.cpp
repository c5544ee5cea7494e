#include "hanji/data/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "hanji/base/random.h"
#include "hanji/data/internal/permutation_kernels.h"

namespace hanji::data {
namespace {

// Keeps the order's draws apart from every other use of the same seed ("order" in ASCII).
constexpr uint64_t kDomain = 0x6f72646572;
// A network on fewer bits has too few round functions to reach most permutations.
constexpr int kLeastHalfBits = 4;
constexpr int64_t kAtOnce = 512;

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

void Permutation::operator()(layout::Range positions, int64_t* out) const {
  std::array<uint64_t, kAtOnce> values;
  std::array<int64_t, kAtOnce> places;
  for (int64_t done = 0; done < positions.size(); done += kAtOnce) {
    size_t left = static_cast<size_t>(std::min(kAtOnce, positions.size() - done));
    for (size_t i = 0; i < left; ++i) {
      places[i] = done + static_cast<int64_t>(i);
      values[i] = static_cast<uint64_t>(positions.begin + places[i]);
    }
    // Those that land outside walk on together.
    while (left > 0) {
      internal::encrypt(*this, std::span(values).first(left));
      size_t outside = 0;
      for (size_t i = 0; i < left; ++i) {
        out[places[i]] = static_cast<int64_t>(values[i]);
        places[outside] = places[i];
        values[outside] = values[i];
        outside += values[i] >= static_cast<uint64_t>(count_) ? 1 : 0;
      }
      left = outside;
    }
  }
}

}  // namespace hanji::data
