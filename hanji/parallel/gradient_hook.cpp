#include "hanji/parallel/gradient_hook.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <memory>
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

/// The backward() that this thread runs. libtorch shows parts of it, by address, but not the nodes
/// that it began with. It has a base class, whose place compilers keep but the language does not
/// promise: null where its number, found in the same way, is not the one that libtorch tells.
const autograd::GraphTask* current_task() {
  const auto* nodes = autograd::get_current_graph_task_nodes_in_graph();
  if (nodes == nullptr) return nullptr;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  constexpr size_t kOffset = offsetof(autograd::GraphTask, nodes_in_graph_);
#pragma GCC diagnostic pop
  const auto* bytes = reinterpret_cast<const std::byte*>(nodes) - kOffset;
  const auto* task = reinterpret_cast<const autograd::GraphTask*>(bytes);
  const auto id = static_cast<uint64_t>(autograd::get_current_graph_task_id());
  return task->id_ == id ? task : nullptr;
}

/// At the end of a backward(), when all nodes have run and let go of what they had saved.
void refuse_second(const std::string& parameter) {
  const autograd::GraphTask* task = current_task();
  if (task == nullptr) return;
  for (autograd::Node* first : task->graph_roots_) {
    if (dynamic_cast<autograd::AccumulateGrad*>(first) != nullptr) continue;  // outlives its graph
    auto hook = std::make_unique<SecondBackward>();
    hook->parameter = parameter;
    first->add_pre_hook(std::move(hook));
  }
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
