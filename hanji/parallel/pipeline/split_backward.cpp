#include "hanji/parallel/pipeline/split_backward.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <type_traits>
#include <unordered_set>
#include <utility>

#include "hanji/compute/deferred.h"

namespace hanji::parallel {
namespace {

namespace autograd = torch::autograd;
using autograd::Edge;
using autograd::edge_list;
using autograd::variable_list;

/// A root of backward, which takes any number as its gradient: computes a deferred gradient when backward
/// comes to it.
struct DeferredNode : autograd::Node {
  DeferredNode(compute::DeferredGradient deferred, const at::Tensor& number)
      : Node(deferred.order, edge_list{deferred.weight}), product_(std::move(deferred.product)) {
    add_input_metadata(number);
  }
  variable_list apply(variable_list&& /*gradients*/) override {
    return {std::exchange(product_, {})()};
  }

 private:
  std::function<at::Tensor()> product_;
};

/// libtorch's pointers to nodes are of other types in other versions.
template <class Node, class... Arguments>
decltype(Edge::function) make_node(Arguments&&... arguments) {
  using Pointer = decltype(Edge::function);
  if constexpr (std::is_constructible_v<Pointer, Node*>) {
    return Pointer(new Node(std::forward<Arguments>(arguments)...));
  } else {
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  }
}

/// The leaves that gradients of `roots` reach, but for `inputs`.
edge_list leaves_of(const edge_list& roots, const edge_list& inputs) {
  std::unordered_set<const autograd::Node*> seen;
  for (const Edge& input : inputs) seen.insert(input.function.get());
  edge_list leaves, open;
  const auto visit = [&](const Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second) open.push_back(edge);
  };
  for (const Edge& root : roots) visit(root);
  while (!open.empty()) {
    const Edge edge = std::move(open.back());
    open.pop_back();
    if (dynamic_cast<autograd::AccumulateGrad*>(edge.function.get()) != nullptr) {
      leaves.push_back(edge);
    }
    for (const Edge& next : edge.function->next_edges()) visit(next);
  }
  return leaves;
}

}  // namespace

InputBackward::InputBackward(const edge_list& roots, const variable_list& gradients,
                             const layers::Flow& inputs) {
  edge_list outputs;
  variable_list learning;
  for (const at::Tensor& input : inputs) {
    if (!input.requires_grad()) continue;
    learning.push_back(input.detach());
    outputs.push_back(autograd::impl::gradient_edge(input));
  }
  const edge_list leaves = leaves_of(roots, outputs);
  outputs.insert(outputs.end(), leaves.begin(), leaves.end());
  compute::DeferGradients deferring;
  variable_list found(outputs.size());
  if (!roots.empty() && !outputs.empty()) {
    found = autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                           /*create_graph=*/false,
                                                           /*accumulate_grad=*/false, outputs);
  }
  for (size_t i = 0; i < learning.size(); ++i) {
    input_gradients.push_back(found[i].defined() ? found[i] : at::zeros_like(learning[i]));
  }
  for (size_t i = learning.size(); i < outputs.size(); ++i) {
    if (found[i].defined()) weights.add(outputs[i], found[i]);
  }
  const at::Tensor number = at::zeros({});
  for (compute::DeferredGradient& one : deferring.deferred) {
    weights.add({make_node<DeferredNode>(std::move(one), number), 0}, number);
  }
}

void WeightBackward::add(const Edge& root, const at::Tensor& gradient) {
  roots_.push_back(root);
  gradients_.push_back(gradient);
}

void WeightBackward::run() {
  const edge_list roots = std::exchange(roots_, {});
  if (roots.empty()) return;
  autograd::Engine::get_default_engine().execute(roots, std::exchange(gradients_, {}),
                                                 /*keep_graph=*/false, /*create_graph=*/false,
                                                 /*accumulate_grad=*/true);
}

}  // namespace hanji::parallel
