#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "hanji/compute/weight.h"

/// What a tensor is on an axis is part of its type, and with it what its gradient is: a region whose
/// ends do not fit, which would count a gradient twice or lose it, does not compile.
///
///     placement     the value                       its gradient
///     Replicated    equal on all ranks              equal on all ranks
///     Broadcast     equal on all ranks              a term: the sum of all ranks' is the gradient
///     Sharded<dim>  a part along a dimension        the same part of the gradient
///     Partial       a term of a sum                 equal on all ranks
///
/// On an axis in blocks (Axis::in_blocks) a rank has several terms, its partial sums: a value that is
/// Partial, and one that is Broadcast with its gradient, is [k, ...] then.
namespace hanji::parallel::tensor {

struct FeatureBlocks;

struct Replicated {};
struct Broadcast {};
struct Partial {};
template <int64_t kDim>
struct Sharded {};

using Features = Sharded<-1>;  ///< Activations [..., tokens, features] cut by columns.
using Tokens = Sharded<-2>;    ///< Cut by rows of a sample: sequence parallelism.

/// Activations that are `Placement` on an axis. A caller that makes one from a tensor must ensure it.
template <class Placement>
class Typed {
 public:
  explicit Typed(at::Tensor value) : value_(std::move(value)) {}
  const at::Tensor& value() const& { return value_; }
  at::Tensor value() && { return std::move(value_); }

 private:
  at::Tensor value_;
};

/// A parameter that is `Placement` on an axis: Sharded<0> of a weight [outputs, inputs] is cut by
/// outputs, Sharded<1> by inputs.
template <class Placement>
struct Parameter {
  compute::Weight weight;
  std::shared_ptr<const FeatureBlocks> blocks = {};  ///< Null: it is multiplied whole.
  /// Null: its gradient is summed over all rows at once. Else as ProductBlocks.
  std::shared_ptr<const FeatureBlocks> rows = {};
};

/// What a parameter that every row meets (a bias, a norm's weights, the whole matrix of a linear) must
/// be for activations placed so. With tokens cut, each rank has a term of its gradient.
template <class Placement>
struct RowParameterOf;
template <>
struct RowParameterOf<Replicated> {
  using type = Replicated;
};
template <>
struct RowParameterOf<Broadcast> {
  using type = Broadcast;
};
template <>
struct RowParameterOf<Tokens> {
  using type = Broadcast;
};
template <>
struct RowParameterOf<Features> {
  using type = Sharded<0>;
};
template <class Placement>
using RowParameter = Parameter<typename RowParameterOf<Placement>::type>;

/// The sum of two terms, parts or wholes of one kind.
template <class Placement>
Typed<Placement> operator+(const Typed<Placement>& a, const Typed<Placement>& b) {
  return Typed<Placement>(a.value() + b.value());
}

/// Adds a bias to every row. A term of a sum takes none: it would be added on every rank.
template <class Placement>
Typed<Placement> operator+(const Typed<Placement>& x, const RowParameter<Placement>& bias) {
  return Typed<Placement>(x.value() + bias.weight.value);
}

}  // namespace hanji::parallel::tensor
