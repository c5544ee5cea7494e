#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <vector>

#include "hanji/layers/flow.h"
#include "hanji/layout/range.h"
#include "hanji/parallel/named_parameter.h"

namespace hanji::layers {
class Model;
}

namespace hanji::parallel {

/// A layer that reads a parameter which an earlier one has read (a tied weight), so that the gradient of
/// each use can be summed by itself.
struct TiedUse {
  NamedParameter parameter;
  int64_t layer = 0;
  at::Tensor leaf;  ///< Gets the gradient of this use; shaped like the parameter, without values.
  torch::autograd::Edge edge;  ///< To the leaf.
};

/// Of the parameters that learn, in order of layers: the uses within `layers`, without the first of each
/// parameter there, whose gradient is the parameter's.
std::vector<TiedUse> tied_uses(const layers::Model& model,
                               const std::vector<layout::Range>& layers);

/// While one of these layers runs, the gradient of what it reads goes to the leaf. The innermost scope.
layers::LayerScope use_scope(std::vector<TiedUse> uses);

}  // namespace hanji::parallel
