#include "hanji/compute/convolution.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "hanji/compute/deferred.h"

namespace hanji::compute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Convolved {
  at::Tensor g, x, weight;
  ConvolutionOptions options;

  /// Those of the input and of the weight that are wanted.
  std::tuple<at::Tensor, at::Tensor> gradients(bool of_input, bool of_weight) const {
    const std::vector<int64_t> stride(2, options.stride), padding(2, options.padding);
    auto [gx, gw, none] = at::convolution_backward(
        g, x, weight, at::OptionalIntArrayRef(), stride, padding, {1, 1},
        /*transposed=*/false, {0, 0}, /*groups=*/1, {of_input, of_weight, false});
    return {gx, gw};
  }
};

struct Convolution : torch::autograd::Function<Convolution> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            ConvolutionOptions options) {
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = options.stride;
    context->saved_data["padding"] = options.padding;
    return at::conv2d(x, weight, {}, options.stride, options.padding);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Convolved convolved{gradients[0],
                              saved[0],
                              saved[1].detach(),
                              {.stride = context->saved_data["stride"].toInt(),
                               .padding = context->saved_data["padding"].toInt()}};
    const bool of_input = context->needs_input_grad(0), of_weight = context->needs_input_grad(1);
    if (!of_weight || !defers_gradients()) {
      auto [gx, gw] = convolved.gradients(of_input, of_weight);
      return {gx, gw, {}};
    }
    const at::Tensor gx = of_input ? std::get<0>(convolved.gradients(true, false)) : at::Tensor();
    const auto product = [convolved] { return std::get<1>(convolved.gradients(false, true)); };
    return {gx, weight_gradient(1, {convolved.g, convolved.x}, product), {}};
  }
};

}  // namespace

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, ConvolutionOptions options) {
  return Convolution::apply(x, weight, options);
}

}  // namespace hanji::compute
