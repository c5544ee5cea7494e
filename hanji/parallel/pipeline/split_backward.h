#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "hanji/layers/flow.h"

namespace hanji::parallel {

/// The second part of a backward, which InputBackward has left: the gradients of parameters.
class WeightBackward {
 public:
  /// Adds them, as one backward() to the hooks of the parameters. Once.
  void run();
  /// A backward from here too.
  void add(const torch::autograd::Edge& root, const at::Tensor& gradient);

 private:
  std::vector<torch::autograd::Edge> roots_;
  std::vector<at::Tensor>
      gradients_;  ///< Of the roots; any number where the root computes its own.
};

/// The first part of a backward: the gradients of what a stage has received.
struct InputBackward {
  /// Runs a backward from `roots` with their `gradients` to `inputs`, and adds to no parameter. Gradients
  /// of weights that operations can defer (compute::weight_gradient()) are left; those of other
  /// parameters, small ones as a rule, are kept.
  ///
  /// Hooks of tensors run once, but those that a parameter has by register_hook() can run twice.
  InputBackward(const std::vector<torch::autograd::Edge>& roots,
                const std::vector<at::Tensor>& gradients, const layers::Flow& inputs);

  /// Of the inputs that have one; zeros for one that is not reached.
  std::vector<at::Tensor> input_gradients;
  WeightBackward weights;
};

}  // namespace hanji::parallel
