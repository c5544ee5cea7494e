#include "hanji/data/internal/permutation_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hanji/data/permutation_kernels.cpp"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hanji::data::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D64 = hn::ScalableTag<uint64_t>;
using D32 = hn::Repartition<uint32_t, D64>;
using V64 = hn::VFromD<D64>;

HWY_INLINE V64 set(uint64_t value) { return hn::Set(D64(), value); }

/// Of the low 32 bits of each lane.
HWY_INLINE V64 product(uint32_t factor, V64 words) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Mul(set(factor), hn::And(words, set(UINT32_MAX)));
#else
  return hn::MulEven(hn::Set(D32(), factor), hn::BitCast(D32(), words));
#endif
}

/// The counter of base::Philox, a word in the low half of each lane; what the upper halves hold means
/// nothing.
struct Counter {
  V64 x0, x1, x2, x3;

  HWY_INLINE void round(V64 key0, V64 key1) {
    const V64 of_0 = product(0xD2511F53, x0);
    const V64 of_2 = product(0xCD9E8D57, x2);
    x0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(of_2), x1), key0);
    x2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(of_0), x3), key1);
    x1 = of_2;
    x3 = of_0;
  }
};

/// What base::mix() counts from for a value below 2^32.
HWY_INLINE Counter counter_of(V64 value) { return {value, set(0), set(0x616E6A69), set(0x68)}; }

/// Two vectors, whose products do not wait for each other.
HWY_INLINE void encrypt_two(const Permutation& order, uint64_t* values) {
  const D64 d;
  const int half_bits = order.half_bits();
  const V64 mask = set((uint64_t{1} << half_bits) - 1);
  const V64 a = hn::LoadU(d, values), b = hn::LoadU(d, values + hn::Lanes(d));
  V64 left_a = hn::ShiftRightSame(a, half_bits), left_b = hn::ShiftRightSame(b, half_bits);
  V64 right_a = hn::And(a, mask), right_b = hn::And(b, mask);
  for (const uint64_t key : order.keys()) {
    Counter mix_a = counter_of(right_a), mix_b = counter_of(right_b);
    auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const V64 round_key0 = set(key0), round_key1 = set(key1);
      mix_a.round(round_key0, round_key1);
      mix_b.round(round_key0, round_key1);
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    const V64 next_a = hn::Xor(left_a, hn::And(mix_a.x0, mask));
    const V64 next_b = hn::Xor(left_b, hn::And(mix_b.x0, mask));
    left_a = right_a;
    left_b = right_b;
    right_a = next_a;
    right_b = next_b;
  }
  hn::StoreU(hn::Or(hn::ShiftLeftSame(left_a, half_bits), right_a), d, values);
  hn::StoreU(hn::Or(hn::ShiftLeftSame(left_b, half_bits), right_b), d, values + hn::Lanes(d));
}

void encrypt(const Permutation& order, uint64_t* values, size_t count) {
  const size_t step = 2 * hn::Lanes(D64());
  size_t i = 0;
  for (; i + step <= count; i += step) encrypt_two(order, values + i);
  if (i == count) return;
  uint64_t rest[2 * HWY_MAX_BYTES / sizeof(uint64_t)] = {};
  std::copy(values + i, values + count, rest);
  encrypt_two(order, rest);
  std::copy_n(rest, count - i, values + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace hanji::data::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hanji/base/simd_dispatch.h"

namespace hanji::data::internal {

HWY_EXPORT(encrypt);

void encrypt(const Permutation& order, std::span<uint64_t> values) {
  HANJI_DISPATCHED(encrypt)(order, values.data(), values.size());
}

}  // namespace hanji::data::internal
#endif
