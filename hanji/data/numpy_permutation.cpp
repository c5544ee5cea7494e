#include "hanji/data/internal/numpy_permutation.h"

#include <array>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

namespace hanji::data::internal {
namespace {

using Wide = unsigned __int128;

constexpr size_t kPoolWords = 4;

constexpr Wide wide(uint64_t high, uint64_t low) { return Wide{high} << 64 | low; }

/// Spreads the bits of a word, with constants that change from call to call.
class SeedHash {
 public:
  constexpr SeedHash(uint32_t start, uint32_t factor) : constant_(start), factor_(factor) {}

  constexpr uint32_t operator()(uint32_t word) {
    word ^= constant_;
    constant_ *= factor_;
    word *= constant_;
    return word ^ word >> 16;
  }

 private:
  uint32_t constant_;
  uint32_t factor_;
};

/// numpy's SeedSequence(seed).generate_state(4, uint64).
std::array<uint64_t, 4> seed_words(uint64_t seed) {
  std::array<uint32_t, kPoolWords> pool = {static_cast<uint32_t>(seed),
                                           static_cast<uint32_t>(seed >> 32)};
  SeedHash into_pool(0x43b0d7e5, 0x931e8875);
  for (uint32_t& word : pool) word = into_pool(word);
  for (size_t from = 0; from < kPoolWords; ++from) {
    for (size_t to = 0; to < kPoolWords; ++to) {
      if (from == to) continue;
      const uint32_t mixed = 0xca01f9dd * pool[to] - 0x4973f715 * into_pool(pool[from]);
      pool[to] = mixed ^ mixed >> 16;
    }
  }
  SeedHash out_of_pool(0x8b51f9dd, 0x58f38ded);
  std::array<uint64_t, 4> words{};
  for (size_t i = 0; i < 2 * words.size(); ++i) {
    words[i / 2] |= uint64_t{out_of_pool(pool[i % kPoolWords])} << 32 * (i % 2);
  }
  return words;
}

class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const auto words = seed_words(seed);
    increment_ = wide(words[2], words[3]) << 1 | 1;
    advance();
    state_ += wide(words[0], words[1]);
    advance();
  }

  uint64_t next64() {
    advance();
    const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    return std::rotr(folded, static_cast<int>(state_ >> 122));
  }

  /// Halves of next64(), the low one first.
  uint32_t next32() {
    has_high_ = !has_high_;
    if (!has_high_) return static_cast<uint32_t>(both_ >> 32);
    both_ = next64();
    return static_cast<uint32_t>(both_);
  }

  /// One of 0 to `most`, evenly.
  uint64_t up_to(uint64_t most) {
    const uint64_t mask = ~uint64_t{0} >> std::countl_zero(most);
    while (true) {
      const uint64_t drawn = (mask >> 32 == 0 ? next32() : next64()) & mask;
      if (drawn <= most) return drawn;
    }
  }

 private:
  void advance() { state_ = state_ * wide(0x2360ED051FC65DA4, 0x4385DF649FCCF645) + increment_; }

  Wide state_ = 0;
  Wide increment_ = 0;
  uint64_t both_ = 0;
  bool has_high_ = false;  // of `both_`, to be given next
};

}  // namespace

std::vector<int64_t> numpy_permutation(uint64_t seed, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  Pcg64 random(seed);
  for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random.up_to(i)]);
  return order;
}

}  // namespace hanji::data::internal
