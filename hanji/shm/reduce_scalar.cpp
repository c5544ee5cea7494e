#include <array>
#include <cstddef>
#include <cstring>

#include "hanji/shm/internal/element.h"
#include "hanji/shm/internal/reduction.h"
#include "hanji/shm/internal/scalar_op.h"
#include "hanji/shm/reduce.h"

namespace hanji::shm {
namespace {

using namespace internal;
using schedule::ReduceOp;

// Slices of bytes make values that are not aligned.
template <class T>
T load_at(const void* values, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(values) + i * sizeof(T), sizeof value);
  return value;
}

template <class T>
void store_at(void* values, int64_t i, T value) {
  std::memcpy(static_cast<std::byte*>(values) + i * sizeof(T), &value, sizeof value);
}

template <class T, class Op>
Wide<T> evaluate(std::span<const void* const> sources, std::span<const int> tree, int64_t i,
                 const ReduceOptions& options) {
  const std::span<const double> factors = options.factors;
  std::array<Wide<T>, kMaxValues> stack;
  size_t top = 0;
  size_t remaining = tree.size();
  for (const int token : tree) {
    --remaining;
    if (token >= 0) {
      stack[top++] = widen(load_at<T>(sources[token], i));
      if (!factors.empty()) stack[top - 1] *= static_cast<Wide<T>>(factors[token]);
    } else {
      --top;
      Wide<T>& node = stack[top - 1];
      node = Op::scalar(node, stack[top]);
      const bool rounds = options.rounding == Rounding::kEveryNode && remaining > 0;
      if (rounds) node = widen(narrow<T>(node));
    }
  }
  return stack[0];
}

template <class V>
V divide(V sum, size_t num_sources) {
  if constexpr (std::is_integral_v<V>) {
    return static_cast<V>(sum / static_cast<int64_t>(num_sources));
  } else {
    return sum / static_cast<V>(num_sources);
  }
}

template <class T, class Op>
void reduce_as(std::span<const void* const> sources, std::span<const int> tree,
               std::span<void* const> destinations, int64_t count, bool average,
               const ReduceOptions& options) {
  for (int64_t i = 0; i < count; ++i) {
    Wide<T> value = evaluate<T, Op>(sources, tree, i, options);
    if (average) value = divide(value, sources.size());
    for (void* destination : destinations) store_at<T>(destination, i, narrow<T>(value));
  }
}

}  // namespace

void reduce_scalar(DType dtype, ReduceOp op, std::span<const void* const> sources,
                   std::span<const int> tree, std::span<void* const> destinations, int64_t count,
                   const ReduceOptions& options) {
  if (dtype == DType::kBool) op = op_of_bool(op);
  visit(dtype, [&]<class T>(T) {
    const auto by = [&]<class Op>(Op) {
      const bool average = op == ReduceOp::kAvg;
      reduce_as<T, Op>(sources, tree, destinations, count, average, options);
    };
    switch (op) {
      case ReduceOp::kPremulSum:
      case ReduceOp::kSum:
      case ReduceOp::kAvg: return by(Sum());
      case ReduceOp::kMin: return by(Min());
      case ReduceOp::kMax: return by(Max());
      case ReduceOp::kProd: return by(Prod());
      default: break;
    }
    if constexpr (std::is_integral_v<T>) {
      if (op == ReduceOp::kBitAnd) by(BitAnd());
      if (op == ReduceOp::kBitOr) by(BitOr());
      if (op == ReduceOp::kBitXor) by(BitXor());
    }
  });
}

}  // namespace hanji::shm
