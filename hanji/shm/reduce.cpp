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

// Loads elements as Wide<T>: from T itself, or from Wide<T>.
template <class T, bool kWide>
HWY_INLINE hn::Vec<Tag<T>> load(const void* from, int64_t i) {
  const Tag<T> d;
  if constexpr (!kIsNarrow<T> || kWide) {
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

// Stores elements as T, or as Wide<T>.
template <class T, bool kWide, class V>
HWY_INLINE void store(V value, void* to, int64_t i) {
  const Tag<T> d;
  if constexpr (!kIsNarrow<T> || kWide) {
    hn::StoreU(value, d, static_cast<Wide<T>*>(to) + i);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Rebind<uint16_t, Tag<T>> d16;
    hn::StoreU(round_to_bfloat16(value), d16, static_cast<uint16_t*>(to) + i);
  } else {
    const hn::Rebind<hwy::float16_t, Tag<T>> d16;
    hn::StoreU(hn::DemoteTo(d16, value), d16, static_cast<hwy::float16_t*>(to) + i);
  }
}

template <class Op, class V>
HWY_INLINE V apply(V a, V b) {
  if constexpr (std::is_same_v<Op, Sum>) {
    return hn::Add(a, b);
  } else if constexpr (std::is_same_v<Op, Prod>) {
    return hn::Mul(a, b);
  } else if constexpr (std::is_same_v<Op, BitAnd>) {
    return hn::And(a, b);
  } else if constexpr (std::is_same_v<Op, BitOr>) {
    return hn::Or(a, b);
  } else if constexpr (std::is_same_v<Op, BitXor>) {
    return hn::Xor(a, b);
  } else if constexpr (!hwy::IsFloat<hn::TFromV<V>>()) {
    return std::is_same_v<Op, Min> ? hn::Min(a, b) : hn::Max(a, b);
  } else {
    const auto closer = std::is_same_v<Op, Min> ? hn::Lt(a, b) : hn::Lt(b, a);
    return hn::IfThenElse(hn::Or(closer, hn::IsNaN(a)), a, b);
  }
}

// What the vectors of this instruction set cannot do bit-equal to scalar code.
template <class T, class Op>
constexpr bool only_scalar() {
  if (std::is_same_v<Op, Prod> && (sizeof(T) == 1 || std::is_same_v<T, int64_t>)) return true;
  if (kIsFloat8<T>) return true;  // widened by a table
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
  if (std::is_same_v<T, Float16>) return true;  // no conversion instruction before F16C
#endif
  return false;
}

// Of memory that need not be aligned, as a view of bytes may be.
template <class T>
T element(const void* from, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + i * int64_t{sizeof(T)}, sizeof(T));
  return value;
}

template <class T>
void set_element(T value, void* to, int64_t i) {
  std::memcpy(static_cast<std::byte*>(to) + i * int64_t{sizeof(T)}, &value, sizeof(T));
}

// Which of the two sources and the target are wide.
template <bool kLeft, bool kRight, bool kTo>
struct Shape {};

template <class T, class Op, bool kLeft, bool kRight, bool kTo>
void combine_as(const Combination& c, Shape<kLeft, kRight, kTo>) {
  const void* left = c.left;
  const void* right = c.right;
  void* first = c.first;
  void* second = c.second;
  int64_t i = 0;
  if constexpr (!only_scalar<T, Op>()) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
    const int64_t whole = c.count - c.count % lanes;
    if (second == nullptr) {
      for (; i < whole; i += lanes) {
        store<T, kTo>(apply<Op>(load<T, kLeft>(left, i), load<T, kRight>(right, i)), first, i);
      }
    } else {
      for (; i < whole; i += lanes) {
        const auto value = apply<Op>(load<T, kLeft>(left, i), load<T, kRight>(right, i));
        store<T, kTo>(value, first, i);
        store<T, kTo>(value, second, i);
      }
    }
  }
  using Left = std::conditional_t<kLeft, Wide<T>, T>;
  using Right = std::conditional_t<kRight, Wide<T>, T>;
  using To = std::conditional_t<kTo, Wide<T>, T>;
  for (; i < c.count; ++i) {
    const To value =
        narrow<To>(Op::scalar(widen(element<Left>(left, i)), widen(element<Right>(right, i))));
    set_element(value, first, i);
    if (second != nullptr) set_element(value, second, i);
  }
}

struct Value {
  const void* data;
  bool intermediate;
  bool wide;
  int source;  ///< Of one that is none.
};

template <class T, class Op, bool kTo>
void combine_to(Value left, Value right, const Combination& c) {
  if constexpr (!kIsNarrow<T>) {
    combine_as<T, Op>(c, Shape<true, true, true>());  // T is Wide<T>: one kernel does for all
  } else if (left.wide && right.wide) {
    combine_as<T, Op>(c, Shape<true, true, kTo>());
  } else if (left.wide) {
    combine_as<T, Op>(c, Shape<true, false, kTo>());
  } else if (right.wide) {
    combine_as<T, Op>(c, Shape<false, true, kTo>());
  } else {
    combine_as<T, Op>(c, Shape<false, false, kTo>());
  }
}

template <class V>
void divide(V* values, int64_t count, int64_t divisor) {
  int64_t i = 0;
  if constexpr (!std::is_integral_v<V>) {
    const hn::ScalableTag<V> d;
    const auto by = hn::Set(d, static_cast<V>(divisor));
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= count; i += lanes) {
      hn::StoreU(hn::Div(hn::LoadU(d, values + i), by), d, values + i);
    }
  }
  using By = std::conditional_t<std::is_integral_v<V>, int64_t, V>;
  for (; i < count; ++i) values[i] = static_cast<V>(values[i] / static_cast<By>(divisor));
}

template <class T>
void round_all(const Wide<T>* from, T* to, int64_t count) {
  int64_t i = 0;
  if constexpr (!kIsNarrow<T>) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    i = count;
  } else if constexpr (!only_scalar<T, Sum>()) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
    for (; i + lanes <= count; i += lanes) store<T, false>(load<T, true>(from, i), to, i);
  }
  for (; i < count; ++i) set_element(narrow<T>(from[i]), to, i);
}

template <class T>
void scale(const void* from, double by, Wide<T>* to, int64_t count) {
  const auto factor = static_cast<Wide<T>>(by);
  int64_t i = 0;
  if constexpr (!only_scalar<T, Sum>()) {
    const Tag<T> d;
    const auto factors = hn::Set(d, factor);
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= count; i += lanes) {
      hn::StoreU(hn::Mul(load<T, false>(from, i), factors), d, to + i);
    }
  }
  for (; i < count; ++i) to[i] = widen(element<T>(from, i)) * factor;
}

// One block: intermediate results stay in the first-level cache.
template <class T, class Op>
class Evaluation {
 public:
  static constexpr int64_t kBlock = 4096 / sizeof(Wide<T>);

  explicit Evaluation(const Reduction& r)
      : r_(r), straight_(r.divisor == 0 && r.destinations.size() <= 2) {}

  /// Without intermediate results there is nothing to keep in cache: one block is enough.
  int64_t block() const {
    return straight_ && r_.tree.size() == 3 && r_.factors.empty() ? r_.count : kBlock;
  }

  void run(int64_t begin, int64_t count) {
    std::array<Value, kMaxValues> stack;
    size_t top = 0;
    size_t remaining = r_.tree.size();
    for (const int token : r_.tree) {
      --remaining;
      if (token >= 0) {
        stack[top++] = {static_cast<const T*>(r_.sources[token]) + begin, false, false, token};
        continue;
      }
      Value right = stack[--top];
      Value left = stack[--top];
      num_intermediates_ -= left.intermediate + right.intermediate;
      left = scaled(left, 0, count);
      right = scaled(right, 1, count);
      if (remaining > 0) {
        stack[top++] = combined(left, right, count);
      } else {
        straight_ ? finish_straight(left, right, begin, count) : finish(left, right, begin, count);
      }
    }
    if (r_.tree.size() > 1) return;
    const auto* only = static_cast<const Wide<T>*>(scaled(stack[0], 0, count).data);
    for (void* to : r_.destinations) round_all<T>(only, static_cast<T*>(to) + begin, count);
  }

 private:
  // A source times its factor, which is of the type that it is combined in.
  Value scaled(Value value, [[maybe_unused]] size_t side, [[maybe_unused]] int64_t count) {
    if constexpr (std::is_same_v<Op, Sum> && std::is_floating_point_v<Wide<T>>) {
      if (r_.factors.empty() || value.intermediate) return value;
      scale<T>(value.data, r_.factors[value.source], scaled_[side].data(), count);
      return {scaled_[side].data(), true, true, -1};
    }
    return value;
  }

  // In place of an operand that is an intermediate result, which is as wide as this one.
  Value combined(Value left, Value right, int64_t count) {
    Wide<T>* to = intermediates_[num_intermediates_++].data();
    const Combination c{left.data, right.data, to, nullptr, count};
    r_.rounds_nodes ? combine_to<T, Op, false>(left, right, c)
                    : combine_to<T, Op, true>(left, right, c);
    return {to, true, !r_.rounds_nodes, -1};
  }

  void finish_straight(Value left, Value right, int64_t begin, int64_t count) {
    const auto to = [&](size_t i) -> void* {
      return i < r_.destinations.size() ? static_cast<T*>(r_.destinations[i]) + begin : nullptr;
    };
    combine_to<T, Op, false>(left, right, {left.data, right.data, to(0), to(1), count});
  }

  void finish(Value left, Value right, int64_t begin, int64_t count) {
    Wide<T>* result = result_.data();
    combine_to<T, Op, true>(left, right, {left.data, right.data, result, nullptr, count});
    if (r_.divisor != 0) divide(result, count, r_.divisor);
    for (void* to : r_.destinations) round_all<T>(result, static_cast<T*>(to) + begin, count);
  }

  const Reduction& r_;
  const bool straight_;
  alignas(64) std::array<std::array<Wide<T>, kBlock>, kMaxIntermediates> intermediates_;
  alignas(64) std::array<std::array<Wide<T>, kBlock>, 2> scaled_;  ///< Left and right.
  alignas(64) std::array<Wide<T>, kBlock> result_;
  int num_intermediates_ = 0;
};

template <class T, class Op>
void reduce_blocks(const Reduction& r) {
  if (r.destinations.empty()) return;
  Evaluation<T, Op> evaluation(r);
  const int64_t block = evaluation.block();
  for (int64_t begin = 0; begin < r.count; begin += block) {
    evaluation.run(begin, std::min(block, r.count - begin));
  }
}

// Integers only: check_op() has refused the rest.
template <class T>
void reduce_bits(const Reduction& r) {
  if constexpr (std::is_integral_v<T>) {
    if (r.op == schedule::ReduceOp::kBitAnd) return reduce_blocks<T, BitAnd>(r);
    if (r.op == schedule::ReduceOp::kBitOr) return reduce_blocks<T, BitOr>(r);
    return reduce_blocks<T, BitXor>(r);
  }
}

void reduce_on_target(const Reduction& r) {
  visit(r.dtype, [&]<class T>(T) {
    switch (r.op) {
      case schedule::ReduceOp::kSum:
      case schedule::ReduceOp::kPremulSum:
      case schedule::ReduceOp::kAvg: return reduce_blocks<T, Sum>(r);
      case schedule::ReduceOp::kMin: return reduce_blocks<T, Min>(r);
      case schedule::ReduceOp::kMax: return reduce_blocks<T, Max>(r);
      case schedule::ReduceOp::kProd: return reduce_blocks<T, Prod>(r);
      case schedule::ReduceOp::kBitAnd:
      case schedule::ReduceOp::kBitOr:
      case schedule::ReduceOp::kBitXor: return reduce_bits<T>(r);
    }
  });
}

}  // namespace hanji::shm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hanji::shm {

HWY_EXPORT(reduce_on_target);

void reduce(DType dtype, schedule::ReduceOp op, std::span<const void* const> sources,
            std::span<const int> tree, std::span<void* const> destinations, int64_t count,
            const ReduceOptions& options) {
  if (tree.size() == 1 && options.factors.empty()) {
    const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
    for (void* out : destinations) {
      if (out != sources[0] && bytes != 0) std::memcpy(out, sources[0], bytes);
    }
    return;
  }
  const int64_t divisor = op == schedule::ReduceOp::kAvg ? static_cast<int64_t>(sources.size()) : 0;
  if (dtype == DType::kBool) op = internal::op_of_bool(op);
  HWY_DYNAMIC_DISPATCH(reduce_on_target)
  ({dtype, op, sources, tree, destinations, count, divisor, options.factors,
    options.rounding == Rounding::kEveryNode});
}

Status check_op(schedule::ReduceOp op, DType dtype) {
  const auto refuse = [&](const char* hint) {
    return base::unsupported(std::string(name_of(op)) + " of " + std::string(name_of(dtype)) +
                             "; " + hint);
  };
  if (is_bitwise(op) && is_floating(dtype)) return refuse("bits are combined of integers and bool");
  if (op == schedule::ReduceOp::kPremulSum && !is_floating(dtype)) {
    return refuse("factors are of floating types");
  }
  if (op == schedule::ReduceOp::kAvg && dtype == DType::kBool) {
    return refuse("convert to a number first");
  }
  return {};
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
