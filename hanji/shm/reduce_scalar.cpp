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
                 std::span<const double> factors) {
  std::array<Wide<T>, kMaxValues> stack;
  size_t top = 0;
  for (const int token : tree) {
    if (token >= 0) {
      stack[top++] = widen(load_at<T>(sources[token], i));
      if (!factors.empty()) stack[top - 1] *= static_cast<Wide<T>>(factors[token]);
    } else {
      --top;
      stack[top - 1] = Op::scalar(stack[top - 1], stack[top]);
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
               std::span<const double> factors = {}) {
  for (int64_t i = 0; i < count; ++i) {
    Wide<T> value = evaluate<T, Op>(sources, tree, i, factors);
    if (average) value = divide(value, sources.size());
    for (void* destination : destinations) store_at<T>(destination, i, narrow<T>(value));
  }
}

}  // namespace

void reduce_scalar(DType dtype, ReduceOp op, std::span<const void* const> sources,
                   std::span<const int> tree, std::span<void* const> destinations, int64_t count,
                   std::span<const double> factors) {
  if (dtype == DType::kBool) op = op_of_bool(op);
  visit(dtype, [&]<class T>(T) {
    switch (op) {
      case ReduceOp::kPremulSum:
        return reduce_as<T, Sum>(sources, tree, destinations, count, false, factors);
      case ReduceOp::kSum: return reduce_as<T, Sum>(sources, tree, destinations, count, false);
      case ReduceOp::kAvg: return reduce_as<T, Sum>(sources, tree, destinations, count, true);
      case ReduceOp::kMin: return reduce_as<T, Min>(sources, tree, destinations, count, false);
      case ReduceOp::kMax: return reduce_as<T, Max>(sources, tree, destinations, count, false);
      case ReduceOp::kProd: return reduce_as<T, Prod>(sources, tree, destinations, count, false);
      default: break;
    }
    if constexpr (std::is_integral_v<T>) {
      if (op == ReduceOp::kBitAnd) reduce_as<T, BitAnd>(sources, tree, destinations, count, false);
      if (op == ReduceOp::kBitOr) reduce_as<T, BitOr>(sources, tree, destinations, count, false);
      if (op == ReduceOp::kBitXor) reduce_as<T, BitXor>(sources, tree, destinations, count, false);
    }
  });
}

}  // namespace hanji::shm
