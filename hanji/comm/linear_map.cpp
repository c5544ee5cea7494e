#include "hanji/comm/linear_map.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

namespace hanji::comm {
namespace {

struct Holder : torch::CustomClassHolder {
  explicit Holder(LinearMap held) : map(std::move(held)) {}
  LinearMap map;
};

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const LinearMap& map) {
    context->saved_data["map"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(map));
    return map.forward(input.detach().contiguous());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto held = context->saved_data["map"].toCapsule();
    const LinearMap& map = static_cast<const Holder&>(*held).map;
    return {apply_linear(gradients[0], {map.backward, map.forward}), at::Tensor()};
  }
};

}  // namespace

at::Tensor apply_linear(const at::Tensor& input, const LinearMap& map) {
  return Linear::apply(input, map);
}

}  // namespace hanji::comm
