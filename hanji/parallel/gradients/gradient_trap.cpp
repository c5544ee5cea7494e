#include "hanji/parallel/gradients/gradient_trap.h"

#include "hanji/parallel/without_memory.h"

namespace hanji::parallel {
namespace {

void clear_trap(at::Tensor& gradient, const at::Tensor& trap) {
  if (gradient.is_same(trap)) gradient.reset();
}

at::Tensor make_trap(const NamedParameter& parameter, const std::string& strategy) {
  const at::Tensor& whole = parameter.tensor;
  return without_memory(
      whole.sizes(), whole.options().requires_grad(false),
      "the gradient of parameter " + parameter.name + " is not here: " + strategy +
          "() has reduced it to the shards; make the optimizer from the handle's parameters(), and "
          "use the handle's step(optimizer) and clip_grad_norm(); zero_grad() that sets to none is "
          "fine");
}

}  // namespace

/// Runs before autograd adds a gradient to what is there. One of the hooks that users have too: theirs
/// would drive out any other kind. The parameter owns it, and is no owner's to it.
GradientTrap::GradientTrap(const NamedParameter& parameter, const std::string& strategy)
    : parameter_(parameter.tensor),
      tensor_(make_trap(parameter, strategy)),
      hook_(parameter_.register_hook(
          [impl = parameter_.unsafeGetTensorImpl(), trap = tensor_](const at::Tensor&) {
            clear_trap(impl->mutable_grad(), trap);
          })) {}

GradientTrap::~GradientTrap() {
  clear();
  parameter_.remove_hook(hook_);
}

void GradientTrap::clear() const { clear_trap(parameter_.mutable_grad(), tensor_); }

}  // namespace hanji::parallel
