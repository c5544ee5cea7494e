#pragma once

#include <cstdint>

namespace hanji::parallel {

/// How the gradients of the ranks become one.
enum class Average : uint8_t {
  kMean,      ///< Sum over ranks (grains) divided by their number: right when every loss is a mean.
  kSum,       ///< The plain sum: right when losses are sums, divided once by the caller.
  kWeighted,  ///< sum(weight * gradient) / sum(weight), see Replicas::set_weight().
};

}  // namespace hanji::parallel
