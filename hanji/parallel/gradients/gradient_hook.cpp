#include "hanji/parallel/gradients/gradient_hook.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace hanji::parallel {
namespace {

namespace autograd = torch::autograd;

struct GradientHook : autograd::PostAccumulateGradHook {
  GradientUser user;
  std::function<void()> on_gradient;
  std::unique_ptr<autograd::PostAccumulateGradHook> earlier;

  void operator()(const autograd::Variable& parameter) override {
    if (earlier) (*earlier)(parameter);
    on_gradient();
  }
};

const GradientHook* hook_of(const at::Tensor& parameter) {
  if (!parameter.requires_grad() || !parameter.is_leaf()) return nullptr;
  return dynamic_cast<const GradientHook*>(autograd::impl::post_acc_grad_hooks(parameter).get());
}

/// The first of the parameter's hooks that `is_one` takes.
template <class IsOne>
std::string first_strategy(const at::Tensor& parameter, const IsOne& is_one) {
  const GradientHook* hook = hook_of(parameter);
  while (hook != nullptr && !is_one(hook->user)) {
    hook = dynamic_cast<const GradientHook*>(hook->earlier.get());
  }
  return hook == nullptr ? std::string() : hook->user.strategy;
}

}  // namespace

void add_gradient_hook(const at::Tensor& parameter, GradientUser user,
                       std::function<void()> on_gradient) {
  auto hook = std::make_unique<GradientHook>();
  hook->user = std::move(user);
  hook->on_gradient = std::move(on_gradient);
  if (autograd::impl::get_autograd_meta(parameter) != nullptr) {
    hook->earlier = std::move(autograd::impl::post_acc_grad_hooks(parameter));
  }
  autograd::impl::set_post_acc_grad_hooks(parameter, std::move(hook));
}

void remove_gradient_hook(const at::Tensor& parameter, const void* owner) {
  auto* place = &autograd::impl::post_acc_grad_hooks(parameter);
  auto* hook = dynamic_cast<GradientHook*>(place->get());
  while (hook != nullptr && hook->user.owner != owner) {
    place = &hook->earlier;
    hook = dynamic_cast<GradientHook*>(place->get());
  }
  if (hook != nullptr) *place = std::exchange(hook->earlier, nullptr);
}

std::string strategy_of(const at::Tensor& parameter) {
  return first_strategy(parameter, [](const GradientUser& user) { return !user.only_watches; });
}

std::shared_ptr<void> handle_of(const at::Tensor& parameter) {
  const GradientHook* hook = hook_of(parameter);
  return hook == nullptr ? nullptr : hook->user.handle.lock();
}

std::string stable_strategy_of(const at::Tensor& parameter) {
  return first_strategy(
      parameter, [](const GradientUser& user) { return user.has_grains && !user.only_watches; });
}

}  // namespace hanji::parallel
