#pragma once

#include "hanji/layout/axial.h"
#include "hanji/parallel/tensor/regions.h"

/// Layouts of axial parallelism: sequences [B, S, N, C] and pairs [B, N, N, C] of which each rank of an axis
/// has a part along one dimension, and the ways between them. What a tensor is is its type; parts may be
/// uneven, nothing is padded.
///
///     Rows --reshard_to--> Columns, Channels and back   backward: the way back      all_to_all
///     Rows --gather------> Full                         backward: reduce_scatter    all_gather
///     a constant --own_rows--> this rank's rows         no gradient                 nothing moves
///
/// Parameters are Full too: each rank has a term of their gradients, which data parallelism sums over the
/// ranks of the axis as it does over samples.
namespace hanji::parallel::axial {

using tensor::Axis;
using tensor::Extents;
using tensor::gather;
using tensor::Typed;

using Rows = tensor::Sharded<1>;     ///< Pairs by their first residue; sequences one by one.
using Columns = tensor::Sharded<2>;  ///< Pairs by their second residue; sequences by residue.
using Channels = tensor::Sharded<3>;
using Full = tensor::Broadcast;  ///< On every rank; its gradient is a term of the whole one.

/// How the tensors of one model lie on an axis. On an axis in blocks of rows (Axis::in_blocks) a rank has
/// whole ones.
struct Places {
  Axis axis = {};
  Extents sequences = {};
  Extents residues = {};
  layout::TriangleWay triangle = layout::TriangleWay::kChannels;

  layout::Range own_sequences() const { return axis.own_range(sequences); }
  layout::Range own_residues() const { return axis.own_range(residues); }
};

/// Sizes of all ranks: of whole blocks, else as even as can be, lower ranks first (layout::axial_rows()).
Extents extents_on(const Axis& axis, int64_t size);

/// N residues and S sequences (0: none), cut so.
/// Errors  throws Error(kInvalidArgument) for fewer of either than blocks.
Places places_on(const Axis& axis, int64_t residues, int64_t sequences,
                 layout::TriangleWay triangle);

namespace internal {
at::Tensor resharded(const at::Tensor& x, tensor::Cut from, tensor::Cut to, const Axis& axis);
}  // namespace internal

/// Moves the cut from one dimension to another: `from` are all ranks' sizes of the former, `to` of the
/// latter.
/// Cost    one all_to_all, forward and backward; on an axis of one rank nothing.
template <int64_t kTo, int64_t kFrom>
Typed<tensor::Sharded<kTo>> reshard_to(const Typed<tensor::Sharded<kFrom>>& x, const Axis& axis,
                                       const Extents& from, const Extents& to) {
  static_assert(kTo != kFrom, "it is cut so already");
  return Typed<tensor::Sharded<kTo>>(
      internal::resharded(x.value(), {kFrom, from}, {kTo, to}, axis));
}

/// Columns as rows of the transposed tensor, and back; a view.
inline Typed<Rows> transposed(const Typed<Columns>& x) {
  return Typed<Rows>(x.value().transpose(1, 2));
}
inline Typed<Columns> transposed(const Typed<Rows>& x) {
  return Typed<Columns>(x.value().transpose(1, 2));
}

/// This rank's rows of a constant that every rank has: a mask or an input.
inline at::Tensor own_rows(const at::Tensor& constant, layout::Range own) {
  return constant.narrow(1, own.begin, own.size());
}

}  // namespace hanji::parallel::axial
