#pragma once

#include <cstdint>

#include "hanji/schedule/operation.h"

namespace hanji::parallel {

/// How the gradients of the ranks are combined.
enum class Average : uint8_t {
  kMean,      ///< Sum over ranks (grains) divided by their number: right when every loss is a mean.
  kSum,       ///< The plain sum: right when losses are sums, divided once by the caller.
  kWeighted,  ///< sum(weight * gradient) / sum(weight), see Replicas::set_weight().
};

/// The operation of a collective with one gradient per rank; weights are applied before.
constexpr schedule::ReduceOp reduce_op(Average average) {
  return average == Average::kMean ? schedule::ReduceOp::kAvg : schedule::ReduceOp::kSum;
}

}  // namespace hanji::parallel
