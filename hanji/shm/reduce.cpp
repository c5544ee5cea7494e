// Compiled once per instruction set by foreach_target.h; HWY_DYNAMIC_DISPATCH picks at run time.
#include "hanji/shm/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "hanji/shm/internal/element.h"
#include "hanji/shm/internal/reduction.h"
#include "hanji/shm/internal/scalar_op.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hanji/shm/reduce.cpp"
// Three widths are enough on x86: SSE2 as the floor, AVX2, AVX-512.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hanji::shm::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace internal;

template <class T>
using Tag = hn::ScalableTag<Wide<T>>;

// Loads elements as Wide<T>: from T itself, or from an intermediate result.
template <class T, bool kIntermediate>
HWY_INLINE hn::Vec<Tag<T>> load(const void* from, int64_t i) {
  const Tag<T> d;
  if constexpr (!kIsHalf<T> || kIntermediate) {
    return hn::LoadU(d, static_cast<const Wide<T>*>(from) + i);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Rebind<uint16_t, Tag<T>> d16;
    const hn::RebindToUnsigned<Tag<T>> d32;
    const auto bits = hn::LoadU(d16, static_cast<const uint16_t*>(from) + i);
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
  } else {
    const hn::Rebind<hwy::float16_t, Tag<T>> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, static_cast<const hwy::float16_t*>(from) + i));
  }
}

template <class V>
HWY_INLINE auto round_to_bfloat16(V value) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> d32;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const hn::Rebind<int32_t, decltype(d)> i32;
  const auto bits = hn::BitCast(d32, value);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d32, 0x7fff)), odd));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(value));
  const auto half = hn::IfThenElse(is_nan, hn::Or(high, hn::Set(d32, 0x40)), rounded);
  return hn::DemoteTo(d16, hn::BitCast(i32, half));
}

template <class T, bool kIntermediate, class V>
HWY_INLINE void store(V value, std::span<void* const> to, int64_t i) {
  const Tag<T> d;
  if constexpr (!kIsHalf<T> || kIntermediate) {
    for (void* out : to) hn::StoreU(value, d, static_cast<Wide<T>*>(out) + i);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Rebind<uint16_t, Tag<T>> d16;
    const auto half = round_to_bfloat16(value);
    for (void* out : to) hn::StoreU(half, d16, static_cast<uint16_t*>(out) + i);
  } else {
    const hn::Rebind<hwy::float16_t, Tag<T>> d16;
    const auto half = hn::DemoteTo(d16, value);
    for (void* out : to) hn::StoreU(half, d16, static_cast<hwy::float16_t*>(out) + i);
  }
}

template <class Op, class V>
HWY_INLINE V apply(V a, V b) {
  if constexpr (std::is_same_v<Op, Sum>) {
    return hn::Add(a, b);
  } else if constexpr (std::is_same_v<Op, Prod>) {
    return hn::Mul(a, b);
  } else if constexpr (!hwy::IsFloat<hn::TFromV<V>>()) {
    return std::is_same_v<Op, Min> ? hn::Min(a, b) : hn::Max(a, b);
  } else {
    const auto closer = std::is_same_v<Op, Min> ? hn::Lt(a, b) : hn::Lt(b, a);
    return hn::IfThenElse(hn::Or(closer, hn::IsNaN(a)), a, b);
  }
}

template <class T, bool kLeftIntermediate, bool kRightIntermediate, bool kToIntermediate, class Op>
void combine_scalar(const Combination& c, int64_t begin) {
  using Left = std::conditional_t<kLeftIntermediate, Wide<T>, T>;
  using Right = std::conditional_t<kRightIntermediate, Wide<T>, T>;
  using To = std::conditional_t<kToIntermediate, Wide<T>, T>;
  for (int64_t i = begin; i < c.count; ++i) {
    Wide<T> value = Op::scalar(widen(static_cast<const Left*>(c.left)[i]),
                               widen(static_cast<const Right*>(c.right)[i]));
    if (c.divisor != 0) {
      using Divisor = std::conditional_t<std::is_integral_v<T>, int64_t, Wide<T>>;
      value = static_cast<Wide<T>>(value / static_cast<Divisor>(c.divisor));
    }
    for (void* out : c.to) static_cast<To*>(out)[i] = narrow<To>(value);
  }
}

// What the vectors of this instruction set cannot do bit-equal to scalar code.
template <class T, class Op>
constexpr bool only_scalar() {
  if (std::is_same_v<Op, Prod> && (sizeof(T) == 1 || std::is_same_v<T, int64_t>)) return true;
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
  if (std::is_same_v<T, Float16>) return true;  // no conversion instruction before F16C
#endif
  return false;
}

template <class T, bool kLeftIntermediate, bool kRightIntermediate, bool kToIntermediate, class Op>
void combine_as(const Combination& c) {
  int64_t i = 0;
  if constexpr (!only_scalar<T, Op>()) {
    const Tag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto value_at = [&c](int64_t at) HWY_ATTR {
      return apply<Op>(load<T, kLeftIntermediate>(c.left, at),
                       load<T, kRightIntermediate>(c.right, at));
    };
    if (c.divisor == 0) {
      for (; i + lanes <= c.count; i += lanes) store<T, kToIntermediate>(value_at(i), c.to, i);
    } else if constexpr (!std::is_integral_v<T>) {
      const auto divisor = hn::Set(d, static_cast<Wide<T>>(c.divisor));
      for (; i + lanes <= c.count; i += lanes) {
        store<T, kToIntermediate>(hn::Div(value_at(i), divisor), c.to, i);
      }
    }
  }
  combine_scalar<T, kLeftIntermediate, kRightIntermediate, kToIntermediate, Op>(c, i);
}

struct Value {
  const void* data;
  bool intermediate;
};

template <class T, class Op>
void combine(Value left, Value right, bool last, const Combination& c) {
  const auto pick = [&]<bool kLeft, bool kRight>() {
    last ? combine_as<T, kLeft, kRight, false, Op>(c) : combine_as<T, kLeft, kRight, true, Op>(c);
  };
  if constexpr (!kIsHalf<T>) {
    pick.template operator()<true, true>();  // T is Wide<T>: one kernel does for all
  } else if (left.intermediate) {
    right.intermediate ? pick.template operator()<true, true>()
                       : pick.template operator()<true, false>();
  } else {
    right.intermediate ? pick.template operator()<false, true>()
                       : pick.template operator()<false, false>();
  }
}

// One block: intermediate results stay in the first-level cache.
template <class T, class Op>
class Evaluation {
 public:
  static constexpr int64_t kBlock = 2048 / sizeof(Wide<T>);

  void run(const Reduction& r, int64_t begin, int64_t count) {
    std::array<Value, kMaxValues> stack;
    size_t top = 0;
    size_t remaining = r.tree.size();
    for (const int token : r.tree) {
      --remaining;
      if (token >= 0) {
        stack[top++] = {static_cast<const T*>(r.sources[token]) + begin, false};
        continue;
      }
      const Value right = stack[--top];
      const Value left = stack[--top];
      num_intermediates_ -= left.intermediate + right.intermediate;
      stack[top++] = combine_two(r, left, right, {begin, count, remaining == 0});
    }
  }

 private:
  struct Where {
    int64_t begin, count;
    bool last;
  };

  Value combine_two(const Reduction& r, Value left, Value right, Where where) {
    std::array<void*, kMaxDestinations> to;
    size_t num_to = 0;
    if (where.last) {
      for (void* out : r.destinations) to[num_to++] = static_cast<T*>(out) + where.begin;
    } else {
      to[num_to++] = intermediates_[num_intermediates_++].data();
    }
    combine<T, Op>(
        left, right, where.last,
        {left.data, right.data, {to.data(), num_to}, where.count, where.last ? r.divisor : 0});
    return {to[0], !where.last};
  }

  alignas(64) std::array<std::array<Wide<T>, kBlock>, kMaxIntermediates> intermediates_;
  int num_intermediates_ = 0;
};

template <class T, class Op>
void reduce_blocks(const Reduction& r) {
  Evaluation<T, Op> evaluation;
  // Without intermediate results there is nothing to keep in cache: one pass.
  const int64_t block = r.tree.size() <= 3 ? r.count : Evaluation<T, Op>::kBlock;
  for (int64_t begin = 0; begin < r.count; begin += block) {
    evaluation.run(r, begin, std::min(block, r.count - begin));
  }
}

void reduce_on_target(const Reduction& r) {
  visit(r.dtype, [&]<class T>(T) {
    switch (r.op) {
      case schedule::ReduceOp::kSum:
      case schedule::ReduceOp::kAvg: return reduce_blocks<T, Sum>(r);
      case schedule::ReduceOp::kMin: return reduce_blocks<T, Min>(r);
      case schedule::ReduceOp::kMax: return reduce_blocks<T, Max>(r);
      case schedule::ReduceOp::kProd: return reduce_blocks<T, Prod>(r);
    }
  });
}

}  // namespace hanji::shm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hanji::shm {

HWY_EXPORT(reduce_on_target);

void reduce(DType dtype, schedule::ReduceOp op, std::span<const void* const> sources,
            std::span<const int> tree, std::span<void* const> destinations, int64_t count) {
  if (tree.size() == 1) {
    const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
    for (void* out : destinations) {
      if (out != sources[0] && bytes != 0) std::memcpy(out, sources[0], bytes);
    }
    return;
  }
  const int64_t divisor = op == schedule::ReduceOp::kAvg ? static_cast<int64_t>(sources.size()) : 0;
  HWY_DYNAMIC_DISPATCH(reduce_on_target)
  ({dtype, op, sources, tree, destinations, count, divisor});
}

Status check_tree(std::span<const int> tree, int num_sources) {
  int values = 0;
  int pushed = 0;
  std::array<bool, internal::kMaxValues> intermediate{};
  std::vector<bool> seen(static_cast<size_t>(std::max(num_sources, 0)));
  int intermediates = 0;
  for (const int token : tree) {
    if (token >= 0) {
      if (token >= num_sources || seen[token] || values == internal::kMaxValues) {
        return base::invalid_argument(
            "reduction tree: source " + std::to_string(token) + " of " +
            std::to_string(num_sources) +
            " is unknown, repeated, or one too many held; use a balanced tree");
      }
      seen[token] = true;
      ++pushed;
      intermediate[values++] = false;
    } else {
      if (token != -1 || values < 2) {
        return base::invalid_argument("reduction tree: token " + std::to_string(token) + " with " +
                                      std::to_string(values) + " values held; -1 combines two");
      }
      --values;
      intermediates += 1 - intermediate[values] - intermediate[values - 1];
      intermediate[values - 1] = true;
    }
    if (intermediates > internal::kMaxIntermediates) {
      return base::invalid_argument("reduction tree: more than " +
                                    std::to_string(internal::kMaxIntermediates) +
                                    " intermediate results; use a balanced tree");
    }
  }
  if (values == 1 && pushed == num_sources) return {};
  return base::invalid_argument("reduction tree: leaves " + std::to_string(values) + " values of " +
                                std::to_string(pushed) + " sources; one value of all " +
                                std::to_string(num_sources) + " is needed");
}

}  // namespace hanji::shm
#endif
