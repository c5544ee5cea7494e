#pragma once

#include <type_traits>
#include <utility>

#include "hanji/compute/layer_norm.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/parallel/tensor/typed.h"

namespace hanji::parallel::tensor {

/// What a branch adds to the residual stream, as compute::Delta: whole or cut by tokens as the stream.
template <class Placement>
struct Delta {
  at::Tensor value;  ///< Undefined: there is none.
  RowParameter<Placement> bias;
};

template <class Placement>
struct LayerNorm {
  RowParameter<Placement> weight;
  RowParameter<Placement> bias;
  double epsilon = 1e-5;
  Extents blocks = {};  ///< Of the rows here, where parameters have entered in blocks of rows.
};

template <class Placement>
struct Normed {
  Typed<Placement> sum;
  Typed<Placement> normed;
};

/// compute::add_layer_norm of the rows that each rank has: all of them, or its tokens. A row is
/// normalised over all its features, so a stream cut by features is not taken.
template <class Placement>
requires(std::is_same_v<Placement, Replicated> || std::is_same_v<Placement, Tokens>)
    Normed<Placement> add_layer_norm(const Typed<Placement>& residual,
                                     const Delta<Placement>& delta,
                                     const LayerNorm<Placement>& norm, c10::ScalarType dtype) {
  auto [sum, normed] = compute::add_layer_norm(
      residual.value(), {delta.value, delta.bias.weight},
      {norm.weight.weight, norm.bias.weight, norm.epsilon, norm.blocks}, dtype);
  return {Typed<Placement>(std::move(sum)), Typed<Placement>(std::move(normed))};
}

}  // namespace hanji::parallel::tensor
