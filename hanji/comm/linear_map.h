#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace hanji::comm {

/// A linear map of detached, contiguous tensors, and the one that takes gradients back.
struct LinearMap {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::function<at::Tensor(const at::Tensor&)> backward;
};

/// map.forward(input), which autograd takes back by map.backward, and that by map.forward, and so
/// on.
///
/// Errors  what the maps throw, in forward and in backward.
/// Thread  the maps run on the thread of the forward and of the backward.
at::Tensor apply_linear(const at::Tensor& input, const LinearMap& map);

}  // namespace hanji::comm
