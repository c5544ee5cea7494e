#pragma once

#include <vector>

#include "hanji/parallel/tensor/axis.h"
#include "hanji/parallel/tensor/typed.h"

/// The ways from one placement to another. Each is differentiable, and its backward is the way back.
///
///     Replicated --enter--> Broadcast      backward: all_reduce      (Megatron's f)
///     Partial    --sum----> Replicated     backward: nothing         (Megatron's g)
///     Sharded    --gather-> Broadcast      backward: reduce_scatter
///     Partial    --scatter_sum-> Sharded   backward: all_gather
///     Replicated --cut----> Sharded        backward: all_gather
///     Sharded    --whole--> Replicated     backward: nothing
///
/// Cost    one collective of the axis where an arrow or its backward names one; on an axis of one rank
///         nothing, and the graph of autograd is that of the plain operations.
///         On an axis in blocks, all_reduces are tree reductions of the blocks' partial sums, and
///         reduce_scatters of activations all_to_alls.
/// Errors  as Axis; throws Error(kUnsupported) for gathered weights in blocks.
/// Source  Shoeybi et al., Megatron-LM, arXiv 1909.08053, figure 3; Korthikanti et al., Reducing
///         Activation Recomputation in Large Transformer Models, arXiv 2205.05198, section 4.2.2.
namespace hanji::parallel::tensor {

namespace internal {
at::Tensor entered(const at::Tensor& x, const Axis& axis);
at::Tensor entered_by_rows(const at::Tensor& parameter, const Axis& axis);
std::vector<at::Tensor> entered_together(const std::vector<at::Tensor>& vectors, const Axis& axis);
at::Tensor summed(const at::Tensor& x, const Axis& axis);
at::Tensor summed_rows(const at::Tensor& x, const Axis& axis);
at::Tensor gathered(const at::Tensor& x, int64_t dim, const Axis& axis, const Extents& extents);
at::Tensor scattered(const at::Tensor& x, int64_t dim, const Axis& axis, const Extents& extents);
at::Tensor cut(const at::Tensor& x, int64_t dim, const Axis& axis, const Extents& extents);
at::Tensor whole(const at::Tensor& x, int64_t dim, const Axis& axis, const Extents& extents);
}  // namespace internal

inline Typed<Broadcast> enter(const Typed<Replicated>& x, const Axis& axis) {
  return Typed<Broadcast>(internal::entered(x.value(), axis));
}

/// For rows that are cut: the sum of all ranks' gradients arrives at the parameter. On an axis in blocks
/// of rows the parameter is [blocks of this rank, ...], one row for each, as is its gradient, and the tree
/// adds them.
inline Parameter<Broadcast> enter(const Parameter<Replicated>& parameter, const Axis& axis) {
  if (axis.degree() == 1 && axis.num_blocks() == 1) return {parameter.weight};
  return {{internal::entered_by_rows(parameter.weight.value, axis), {}}};
}

/// The same of several vectors: their gradients are summed in one call, after the last of them is there.
inline std::vector<Parameter<Broadcast>> enter(const std::vector<Parameter<Replicated>>& parameters,
                                               const Axis& axis) {
  std::vector<Parameter<Broadcast>> entered;
  std::vector<at::Tensor> values;
  for (const auto& one : parameters) values.push_back(one.weight.value);
  const bool stays = axis.degree() == 1 && axis.num_blocks() == 1;
  if (!stays) values = internal::entered_together(values, axis);
  for (size_t i = 0; i < values.size(); ++i) {
    entered.push_back({stays ? parameters[i].weight : compute::Weight{values[i], {}}});
  }
  return entered;
}

/// For products of rows that are cut on an axis in blocks of rows, `rows` those of this rank: as
/// ProductBlocks, and the tree adds the partial sums of all ranks.
template <class Placement>
Parameter<Placement> enter_products(Parameter<Placement> parameter, const Axis& axis,
                                    const std::shared_ptr<const FeatureBlocks>& rows) {
  return {{internal::entered(parameter.weight.value, axis), {}}, parameter.blocks, rows};
}

/// The same of a bias, once for each block of this rank.
template <class Placement>
Parameter<Placement> enter_rows(Parameter<Placement> bias, const Axis& axis,
                                const std::shared_ptr<const FeatureBlocks>& rows) {
  return {{internal::entered_by_rows(bias.weight.value, axis), {}}, bias.blocks, rows};
}

/// The sum over the blocks of all ranks, of those of each rank [blocks of this rank, ...].
inline Typed<Replicated> sum_rows(const Typed<Replicated>& x, const Axis& axis) {
  return Typed<Replicated>(internal::summed_rows(x.value(), axis));
}

inline Typed<Replicated> sum(const Typed<Partial>& x, const Axis& axis) {
  return Typed<Replicated>(internal::summed(x.value(), axis));
}

/// `extents` of each rank's part; empty: all are like this one.
template <int64_t kDim>
Typed<Broadcast> gather(const Typed<Sharded<kDim>>& x, const Axis& axis,
                        const Extents& extents = {}) {
  return Typed<Broadcast>(internal::gathered(x.value(), kDim, axis, extents));
}

/// Moves weights instead of activations.
template <int64_t kDim>
Parameter<Broadcast> gather(const Parameter<Sharded<kDim>>& parameter, const Axis& axis,
                            const Extents& extents = {}) {
  if (axis.degree() == 1) return {parameter.weight};
  return {{internal::gathered(parameter.weight.value, kDim, axis, extents), {}}};
}

/// `extents` of each rank's part; empty: cut evenly.
template <int64_t kDim>
Typed<Sharded<kDim>> scatter_sum(const Typed<Partial>& x, const Axis& axis,
                                 const Extents& extents = {}) {
  return Typed<Sharded<kDim>>(internal::scattered(x.value(), kDim, axis, extents));
}

/// `extents` of each rank's part; empty: cut evenly.
template <int64_t kDim>
Typed<Sharded<kDim>> cut(const Typed<Replicated>& x, const Axis& axis,
                         const Extents& extents = {}) {
  return Typed<Sharded<kDim>>(internal::cut(x.value(), kDim, axis, extents));
}

/// `extents` of each rank's part; empty: all are like this one.
template <int64_t kDim>
Typed<Replicated> whole(const Typed<Sharded<kDim>>& x, const Axis& axis,
                        const Extents& extents = {}) {
  return Typed<Replicated>(internal::whole(x.value(), kDim, axis, extents));
}

}  // namespace hanji::parallel::tensor
