#include "hanji/parallel/checkpointed.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include "hanji/base/at_end.h"
#include "hanji/base/status.h"
#include "hanji/lens/generator_state.h"
#include "hanji/lens/saved_tensors.h"

namespace hanji::parallel {
namespace {

namespace autograd = torch::autograd;
using autograd::variable_list;

std::shared_ptr<const bool>& innermost_backward() {
  thread_local std::shared_ptr<const bool> runs;
  return runs;
}

bool& recomputing() {
  thread_local bool now = false;
  return now;
}

/// The function and what it takes to call it again.
struct Segment {
  TensorFunction fn;
  std::vector<bool> given;   ///< By input: whether it is defined.
  std::vector<bool> learns;  ///< By input: whether a gradient is wanted.
  at::Tensor generator;
  variable_list outputs;  ///< Of the first call, without a graph; taken by forward().
  std::unique_ptr<lens::KeptResults> kept;  ///< Null: nothing of the function is kept.
  variable_list leaves;  ///< Parameters that fn uses, in the order the graph is walked.
};

variable_list detached(const variable_list& inputs, const std::vector<bool>& learns) {
  variable_list copies;
  for (size_t i = 0; i < inputs.size(); ++i) {
    copies.push_back(inputs[i].defined() ? inputs[i].detach() : at::Tensor());
    if (learns[i]) copies.back().requires_grad_();
  }
  return copies;
}

/// The leaves that gradients of `outputs` reach, but for `inputs`.
variable_list leaves_of(const variable_list& outputs, const variable_list& inputs) {
  std::unordered_set<const autograd::Node*> seen;
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) {
      seen.insert(autograd::impl::gradient_edge(input).function.get());
    }
  }
  std::vector<autograd::Node*> open;
  const auto visit = [&](autograd::Node* node) {
    if (node && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) {
      visit(autograd::impl::gradient_edge(output).function.get());
    }
  }
  variable_list leaves;
  while (!open.empty()) {
    autograd::Node* node = open.back();
    open.pop_back();
    if (auto* leaf = dynamic_cast<autograd::AccumulateGrad*>(node))
      leaves.push_back(leaf->variable);
    for (const autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
  return leaves;
}

/// Puts the inputs back that were not defined.
variable_list all_inputs(const Segment& segment, variable_list given) {
  variable_list inputs;
  size_t next = 0;
  for (const bool is_given : segment.given) {
    inputs.push_back(is_given ? std::move(given[next++]) : at::Tensor());
  }
  return inputs;
}

struct Kept : torch::CustomClassHolder {
  explicit Kept(std::shared_ptr<Segment> of) : segment(std::move(of)) {}
  std::shared_ptr<Segment> segment;
};

/// Its graph is let go at once, so what it saves is not worth a way to a disk.
variable_list call_first(const Segment& segment, const variable_list& inputs) {
  const lens::SaverPause in_memory;
  if (!segment.kept) return segment.fn(inputs);
  return segment.kept->first([&] { return segment.fn(inputs); });
}

variable_list call_again(const Segment& segment, const variable_list& inputs) {
  const base::AtEnd restore(
      [former = std::exchange(recomputing(), true)] { recomputing() = former; });
  if (!segment.kept) return segment.fn(inputs);
  return segment.kept->again([&] { return segment.fn(inputs); });
}

/// Gradients of the inputs and leaves by a second call of the function.
variable_list differentiate(const Segment& segment, const variable_list& inputs,
                            const variable_list& gradients) {
  const at::AutoGradMode with_graph(true);
  const lens::KeptGenerator replayed(segment.generator);
  const auto runs = std::make_shared<bool>(true);
  const base::AtEnd restore([&, former = std::exchange(innermost_backward(), runs)] {
    *runs = false;
    innermost_backward() = former;
  });
  const lens::SaverPause in_memory;  // what is saved now is wanted at once
  const variable_list copies = detached(inputs, segment.learns);
  const variable_list outputs = call_again(segment, copies);
  if (outputs.size() != gradients.size()) {
    throw Error(base::invalid_argument("checkpointed: the function gave " +
                                       std::to_string(gradients.size()) +
                                       " outputs in forward and " + std::to_string(outputs.size()) +
                                       " in backward; it must do the same twice"));
  }
  variable_list roots, seeds, targets;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    seeds.push_back(gradients[i]);
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    if (segment.learns[i]) targets.push_back(copies[i]);
  }
  targets.insert(targets.end(), segment.leaves.begin(), segment.leaves.end());
  if (roots.empty() || targets.empty()) return variable_list(targets.size());
  return autograd::grad(roots, targets, seeds, /*retain_graph=*/false, /*create_graph=*/false,
                        /*allow_unused=*/true);
}

struct Checkpoint : autograd::Function<Checkpoint> {
  /// `tensors`: the inputs that are defined, then the leaves.
  static variable_list forward(autograd::AutogradContext* context,
                               const std::shared_ptr<Segment>& segment, at::TensorList tensors) {
    const auto num_given = std::count(segment->given.begin(), segment->given.end(), true);
    context->save_for_backward(tensors.slice(0, static_cast<size_t>(num_given)).vec());
    context->set_materialize_grads(false);
    context->saved_data["segment"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(segment));
    return std::exchange(segment->outputs, {});
  }

  static variable_list backward(autograd::AutogradContext* context, variable_list gradients) {
    const auto kept = context->saved_data["segment"].toCapsule();
    const Segment& segment = *static_cast<const Kept&>(*kept).segment;
    const variable_list found =
        differentiate(segment, all_inputs(segment, context->get_saved_variables()), gradients);
    if (segment.kept) segment.kept->let_go();
    variable_list result(1);  // of the segment, which is no tensor
    size_t next = 0;
    for (size_t i = 0; i < segment.given.size(); ++i) {
      if (segment.given[i]) result.push_back(segment.learns[i] ? found[next++] : at::Tensor());
    }
    result.insert(result.end(), found.begin() + static_cast<int64_t>(next), found.end());
    return result;
  }
};

}  // namespace

bool in_checkpointed_backward() { return innermost_backward() != nullptr; }

std::shared_ptr<const bool> current_recomputation() { return innermost_backward(); }

bool in_recomputation() { return recomputing(); }

std::vector<at::Tensor> checkpointed_all(const TensorFunction& fn,
                                         const std::vector<at::Tensor>& inputs,
                                         const lens::KeepRule& keeps) {
  if (!c10::GradMode::is_enabled()) return fn(inputs);
  const auto segment = std::make_shared<Segment>();
  segment->fn = fn;
  variable_list tensors;
  for (const at::Tensor& input : inputs) {
    segment->given.push_back(input.defined());
    segment->learns.push_back(input.defined() && input.requires_grad());
    if (input.defined()) tensors.push_back(input);
  }
  segment->generator = lens::generator_state();
  const variable_list copies = detached(inputs, segment->learns);
  if (keeps) segment->kept = std::make_unique<lens::KeptResults>(keeps);
  variable_list outputs = call_first(*segment, copies);
  segment->leaves = leaves_of(outputs, copies);
  if (keeps) segment->kept->let_go();
  for (at::Tensor& output : outputs) output = output.detach();
  segment->outputs = std::move(outputs);
  tensors.insert(tensors.end(), segment->leaves.begin(), segment->leaves.end());
  return Checkpoint::apply(segment, at::TensorList(tensors));
}

}  // namespace hanji::parallel
