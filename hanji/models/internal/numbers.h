#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <span>
#include <vector>

namespace hanji::models::internal {

/// The values of all tensors, one after another, as doubles.
/// Cost    one read of their device.
std::vector<double> numbers_of(const std::vector<at::Tensor>& tensors);

/// Doubles on a device.
/// Cost    the host goes on beside the copy.
at::Tensor numbers_on(c10::Device device, std::span<const double> values);

}  // namespace hanji::models::internal
