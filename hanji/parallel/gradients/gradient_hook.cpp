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

}  // namespace

void add_gradient_hook(const at::Tensor& parameter, GradientUser user,
                       std::function<void()> on_gradient) {
  auto hook = std::make_unique<GradientHook>();
  hook->user = std::move(user);
  hook->on_gradient = std::move(on_gradient);
  hook->earlier = std::move(autograd::impl::post_acc_grad_hooks(parameter));
  autograd::impl::set_post_acc_grad_hooks(parameter, std::move(hook));
}

void remove_gradient_hook(const at::Tensor& parameter) {
  auto& hook = autograd::impl::post_acc_grad_hooks(parameter);
  if (auto* ours = dynamic_cast<GradientHook*>(hook.get())) {
    autograd::impl::set_post_acc_grad_hooks(parameter, std::move(ours->earlier));
  }
}

std::string strategy_of(const at::Tensor& parameter) {
  const GradientHook* hook = hook_of(parameter);
  return hook == nullptr ? std::string() : hook->user.strategy;
}

std::string stable_strategy_of(const at::Tensor& parameter) {
  const GradientHook* hook = hook_of(parameter);
  while (hook != nullptr && !hook->user.has_grains) {
    hook = dynamic_cast<const GradientHook*>(hook->earlier.get());
  }
  return hook == nullptr ? std::string() : hook->user.strategy;
}

}  // namespace hanji::parallel
