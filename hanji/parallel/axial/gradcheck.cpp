#include "hanji/parallel/axial/gradcheck.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/comm/group.h"

namespace hanji::parallel::axial {
namespace {

/// The least value by which a gradient's difference is divided, of the largest gradient.
constexpr double kLeastShare = 1e-3;

/// Values in [-1, 1] that differ from element to element and from `number` to `number`.
at::Tensor fixed_values(at::IntArrayRef sizes, int64_t number) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return ((at::arange(count, at::kDouble) + 977.0 * static_cast<double>(number)) * 0.7)
      .sin()
      .view(sizes);
}

at::Tensor own_part(const at::Tensor& whole, int64_t dim, const Axis& axis) {
  if (dim < 0) return whole;
  return axis.own_part(whole, dim, extents_on(axis, whole.size(dim)));
}

/// The whole of what ranks have parts of; of what each has a term of, the sum.
at::Tensor joined(const at::Tensor& own, int64_t dim, int64_t whole_size, const Axis& axis) {
  return dim < 0 ? axis.sum(own) : axis.gather(own, dim, extents_on(axis, whole_size));
}

/// Whole tensors by what they are.
using Results = std::vector<std::pair<std::string, at::Tensor>>;

struct Outcome {
  Results outputs, gradients;
};

/// One forward and backward on an axis.
class CheckedPass {
 public:
  CheckedPass(const GradCheck& check, const Axis& axis)
      : check_(check), axis_(axis), module_(check.make(axis)) {
    module_->to(at::kDouble);
    const at::NoGradGuard no_grad;
    int64_t number = 0;
    for (at::Tensor& one : module_->parameters()) {
      one.copy_(fixed_values(one.sizes(), ++number) * 0.5);
    }
    for (const auto& [whole, dim] : check.inputs) {
      at::Tensor own = own_part(whole, dim, axis).detach().clone();
      if (own.is_floating_point()) own = own.to(at::kDouble).requires_grad_();
      inputs_.push_back(own);
    }
  }

  Outcome run() {
    const std::vector<at::Tensor> outputs = check_.forward(*module_, inputs_);
    if (outputs.size() != check_.output_dims.size()) {
      throw Error(base::invalid_argument(
          fmt::format("check_gradients: the module has {} outputs and GradCheck::output_dims {}; "
                      "give the dimension along which each is cut",
                      outputs.size(), check_.output_dims.size())));
    }
    Outcome outcome;
    at::Tensor loss = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int64_t dim = check_.output_dims[i];
      outcome.outputs.emplace_back(fmt::format("output {}", i), whole_output(outputs[i], dim));
      const at::Tensor& whole = outcome.outputs.back().second;
      const at::Tensor weights = fixed_values(whole.sizes(), 1009 + static_cast<int64_t>(i));
      // What every rank has counts once.
      const double share = dim < 0 && axis_.rank() > 0 ? 0 : 1;
      loss = loss + share * (outputs[i] * own_part(weights, dim, axis_)).sum();
    }
    loss.backward();
    add_gradients(outcome.gradients);
    return outcome;
  }

 private:
  at::Tensor whole_output(const at::Tensor& own, int64_t dim) const {
    const at::Tensor here = own.detach();
    if (dim < 0 || axis_.degree() == 1) return here;
    at::Tensor rows = at::zeros({axis_.degree()}, at::kLong);
    rows[axis_.rank()] = here.size(dim);
    return joined(here, dim, axis_.sum(rows).sum().item<int64_t>(), axis_);
  }

  void add_gradients(Results& all) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].requires_grad()) continue;
      const auto& [whole, dim] = check_.inputs[i];
      const int64_t size = dim < 0 ? 0 : whole.size(dim);
      all.emplace_back(fmt::format("gradient of input {}", i),
                       joined(gradient_of(inputs_[i]), dim, size, axis_));
    }
    for (const auto& item : module_->named_parameters()) {
      if (!item.value().requires_grad()) continue;
      all.emplace_back("gradient of " + item.key(), axis_.sum(gradient_of(item.value())));
    }
  }

  static at::Tensor gradient_of(const at::Tensor& leaf) {
    return leaf.grad().defined() ? leaf.grad().contiguous() : at::zeros_like(leaf.detach());
  }

  const GradCheck& check_;
  Axis axis_;
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<at::Tensor> inputs_;
};

double largest(const at::Tensor& values) {
  return values.numel() == 0 ? 0 : values.abs().max().item<double>();
}

void compare(const Results& found, const Results& expected, double least, double tolerance,
             std::vector<GradDifference>& differences) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& [what, right] = expected[i];
    const bool is_same = found.size() == expected.size() && found[i].first == what &&
                         found[i].second.sizes() == right.sizes();
    if (!is_same) {
      throw Error(base::invalid_argument(
          fmt::format("check_gradients: the module on several ranks has not the parameters and "
                      "outputs of one rank at \"{}\"; make them of the same names and shapes",
                      what)));
    }
    const double scale = std::max(largest(right), least);
    const double relative = largest(found[i].second - right) / (scale > 0 ? scale : 1);
    // Not a number is a difference too.
    if (!(relative <= tolerance)) differences.push_back({what, relative});
  }
}

}  // namespace

std::vector<GradDifference> check_gradients(const GradCheck& check, const comm::Group& group) {
  const Outcome expected = CheckedPass(check, Axis()).run();
  const Outcome found = CheckedPass(check, Axis(group)).run();
  double most = 0;
  for (const auto& [what, gradient] : expected.gradients) most = std::max(most, largest(gradient));
  std::vector<GradDifference> differences;
  compare(found.outputs, expected.outputs, 0, check.tolerance, differences);
  compare(found.gradients, expected.gradients, kLeastShare * most, check.tolerance, differences);
  return differences;
}

}  // namespace hanji::parallel::axial
