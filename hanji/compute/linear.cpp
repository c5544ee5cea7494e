#include "hanji/compute/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "hanji/compute/deferred.h"
#include "hanji/compute/product.h"

namespace hanji::compute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor product_of(const Weight& weight, const at::Tensor& g, const at::Tensor& x) {
  auto gradient = gradient_memory(weight);
  product_out(gradient, g.t(), x);
  return gradient;
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& value,
                            const Weight* weight) {
    auto rows = x.reshape({-1, x.size(-1)});
    const bool casts = value.scalar_type() != x.scalar_type();
    const auto w = value_in(x.scalar_type(), *weight);
    auto sizes = x.sizes().vec();
    sizes.back() = value.size(0);
    context->save_for_backward({rows, value, casts ? w : at::Tensor()});
    context->saved_data["slot"] = weight->slot;
    return at::mm(rows, w.t()).view(sizes);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const Weight weight{saved[1], context->saved_data["slot"].toTensor()};
    auto g = gradients[0].reshape({-1, gradients[0].size(-1)});
    at::Tensor gx, gw;
    if (context->needs_input_grad(1)) {
      gw = weight_gradient(1, {g, x}, [weight, g, x] { return product_of(weight, g, x); });
    }
    if (context->needs_input_grad(0)) {
      auto sizes = gradients[0].sizes().vec();
      sizes.back() = x.size(1);
      gx = at::mm(g, saved[2].defined() ? saved[2] : saved[1].detach()).view(sizes);
    }
    return {gx, gw, {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const Weight& weight) {
  return Linear::apply(x, weight.value, &weight);
}

}  // namespace hanji::compute
