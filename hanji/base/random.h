#pragma once

#include <array>
#include <cstdint>

namespace hanji::base {

/// Philox4x32-10: four random words from a key and a counter, with no state in between.
///
/// Result  the same words on every machine, for every thread count, in any order of calls.
/// Source  Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.
struct Philox {
  static constexpr std::array<uint32_t, 4> draw(uint64_t key, uint64_t counter_high,
                                                uint64_t counter_low) {
    std::array<uint32_t, 4> x = {low(counter_low), high(counter_low), low(counter_high),
                                 high(counter_high)};
    uint32_t key0 = low(key);
    uint32_t key1 = high(key);
    for (int round = 0; round < 10; ++round) {
      const uint64_t product0 = uint64_t{0xD2511F53} * x[0];
      const uint64_t product1 = uint64_t{0xCD9E8D57} * x[2];
      x = {high(product1) ^ x[1] ^ key0, low(product1), high(product0) ^ x[3] ^ key1,
           low(product0)};
      key0 += 0x9E3779B9;  // golden ratio
      key1 += 0xBB67AE85;  // sqrt(3) - 1
    }
    return x;
  }

 private:
  static constexpr uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
  static constexpr uint32_t high(uint64_t value) { return static_cast<uint32_t>(value >> 32); }
};

/// A word as a double in [0, 1): multiples of 2^-32.
constexpr double uniform(uint32_t word) { return word * 0x1p-32; }

/// A new key from a key and a value, e.g. mix(mix(seed, step), sample): both matter, in order.
constexpr uint64_t mix(uint64_t key, uint64_t value) {
  const auto words = Philox::draw(key, 0x68616E6A69, value);
  return uint64_t{words[1]} << 32 | words[0];
}

}  // namespace hanji::base
