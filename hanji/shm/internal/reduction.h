#pragma once

#include <cstdint>
#include <span>

#include "hanji/base/dtype.h"
#include "hanji/schedule/operation.h"

namespace hanji::shm::internal {

/// Values that a reduction's program may hold at once, and how many of them may be intermediate
/// results (a balanced tree over 2^16 sources holds 17 values, 16 of them intermediate).
inline constexpr int kMaxValues = 64;
inline constexpr int kMaxIntermediates = 16;
/// Buffers that one reduction may write: one for each rank of a group.
inline constexpr int kMaxDestinations = 64;

/// The arguments of reduce() in one value.
struct Reduction {
  DType dtype;
  schedule::ReduceOp op;
  std::span<const void* const> sources;
  std::span<const int> tree;
  std::span<void* const> destinations;
  int64_t count;
  int64_t divisor;                  ///< Of the last combination; 0: none.
  std::span<const double> factors;  ///< Of the sources; empty: none.
  bool rounds_nodes;                ///< Rounding::kEveryNode.
};

/// Of bool, a bit in a byte.
constexpr schedule::ReduceOp op_of_bool(schedule::ReduceOp op) {
  using schedule::ReduceOp;
  if (op == ReduceOp::kSum || op == ReduceOp::kMax) return ReduceOp::kBitOr;
  if (op == ReduceOp::kProd || op == ReduceOp::kMin) return ReduceOp::kBitAnd;
  return op;
}

/// One combination of two buffers. They hold T, or Wide<T> where they are wide.
struct Combination {
  const void* left;
  const void* right;
  void* first;
  void* second;  ///< Null: only the first.
  int64_t count;
};

}  // namespace hanji::shm::internal
