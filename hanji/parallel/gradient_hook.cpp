#include "hanji/parallel/gradient_hook.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <memory>
#include <unordered_set>
#include <utility>

#include "hanji/base/status.h"

namespace hanji::parallel {
namespace {

namespace autograd = torch::autograd;

struct GradientHook : autograd::PostAccumulateGradHook {
  std::string strategy;
  std::function<void()> on_gradient;
  std::unique_ptr<autograd::PostAccumulateGradHook> earlier;

  void operator()(const autograd::Variable& parameter) override {
    if (earlier) (*earlier)(parameter);
    on_gradient();
  }
};

struct SecondBackward : autograd::FunctionPreHook {
  std::string parameter;

  autograd::variable_list operator()(const autograd::variable_list&) override {
    throw Error(base::invalid_argument(
        "backward() for the second time through one graph, which leads to parameter " + parameter +
        "; call forward() again, or keep the graph by retain_graph"));
  }
};

/// Of the nodes below the loss, the one that forward made last. Leaves count as infinite.
autograd::Node* last_made(const std::unordered_set<autograd::Node*>& nodes) {
  constexpr auto kLeaf = std::numeric_limits<uint64_t>::max();
  autograd::Node* last = nullptr;
  for (autograd::Node* node : nodes) {
    if (node->sequence_nr() == kLeaf) continue;
    if (last == nullptr || node->sequence_nr() > last->sequence_nr()) last = node;
  }
  return last;
}

/// At the end of a backward(), when all nodes have run and let go of what they had saved.
void refuse_second(const std::string& parameter) {
  const auto* nodes = autograd::get_current_graph_task_nodes_in_graph();
  autograd::Node* last = nodes == nullptr ? nullptr : last_made(*nodes);
  if (last == nullptr) return;
  auto hook = std::make_unique<SecondBackward>();
  hook->parameter = parameter;
  last->add_pre_hook(std::move(hook));
}

}  // namespace

void add_gradient_hook(const at::Tensor& parameter, std::string strategy,
                       std::function<void()> on_gradient) {
  auto hook = std::make_unique<GradientHook>();
  hook->strategy = std::move(strategy);
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
  if (!parameter.requires_grad() || !parameter.is_leaf()) return {};
  const auto& hook = autograd::impl::post_acc_grad_hooks(parameter);
  const auto* ours = dynamic_cast<const GradientHook*>(hook.get());
  return ours == nullptr ? std::string() : ours->strategy;
}

void SecondBackwardGuard::on_gradient(const std::string& parameter) {
  const int task = autograd::get_current_graph_task_id();
  if (task == std::exchange(graph_task_, task)) return;
  if (autograd::get_current_graph_task_keep_graph()) return;
  autograd::Engine::get_default_engine().queue_callback([parameter] { refuse_second(parameter); });
}

}  // namespace hanji::parallel
