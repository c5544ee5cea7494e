#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hanji::compute {

struct ConvolutionOptions {
  int64_t stride = 1;
  int64_t padding = 0;
};

/// at::conv2d without a bias, bit for bit, and its gradients. DeferGradients defers that of the weight.
///
/// Shape   x [B, inputs, H, W], weight [outputs, inputs, h, w]; on any device.
at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, ConvolutionOptions options);

}  // namespace hanji::compute
