#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hanji/parallel/axial/layouts.h"

namespace torch::nn {
class Module;
}

namespace hanji::parallel::axial {

/// A whole tensor, and the dimension along which the ranks of an axis cut it; -1: every rank has all of it.
struct CutTensor {
  at::Tensor whole;
  int64_t dim = 1;
};

/// A module whose activations an axis cuts, and what it reads.
struct GradCheck {
  /// Makes it on an axis; on one of one rank the plain module. Its parameters are whole on every rank and have
  /// the same names and shapes on any axis.
  std::function<std::shared_ptr<torch::nn::Module>(const Axis& axis)> make;
  /// Its outputs, of this rank's parts of the inputs, as extents_on() cuts them.
  std::function<std::vector<at::Tensor>(torch::nn::Module& module,
                                        const std::vector<at::Tensor>& inputs)>
      forward;
  std::vector<CutTensor> inputs;     ///< Those of a floating dtype are given gradients.
  std::vector<int64_t> output_dims;  ///< Of each output, as CutTensor::dim.
  /// Largest relative difference. Sums in another order differ by some 1e-16 for each of their roundings.
  double tolerance = 1e-10;
};

/// What differs between the ranks and one rank.
struct GradDifference {
  std::string what;     ///< "output 0", "gradient of input 1", "gradient of weight".
  double relative = 0;  ///< The largest difference by the largest value.
};

/// Runs the module on one rank and on the ranks of `group`, in float64, and compares outputs, gradients of inputs
/// and gradients of parameters summed over the ranks. The loss is a sum with fixed weights that differ from
/// element to element, and parameters have fixed values, none of them zero: a layer that begins with zeros would
/// hide the gradients before it.
///
/// Result  all that differs by more than the tolerance, the same on every rank; empty: the module is right. Gradients
///         are compared with at least 1e-3 of the largest one of all, as some are zero but for rounding.
/// Order   collective: every rank calls it with the same values.
/// Cost    a forward and backward of the whole module on every rank, and one on its part.
/// Errors  throws Error(kInvalidArgument) for parameters or outputs that are not those of one rank; else what the
///         module throws.
std::vector<GradDifference> check_gradients(const GradCheck& check, const comm::Group& group);

}  // namespace hanji::parallel::axial
