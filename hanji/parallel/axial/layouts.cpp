#include "hanji/parallel/axial/layouts.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/comm/linear_map.h"
#include "hanji/layout/axial_block.h"

namespace hanji::parallel::axial {

Extents extents_on(const Axis& axis, int64_t size) {
  if (axis.num_blocks() > 1) return axis.extents_of(size);
  Extents extents;
  for (int rank = 0; rank < axis.degree(); ++rank) {
    extents.push_back(layout::axial_rows(size, rank, axis.degree()));
  }
  return extents;
}

Places places_on(const Axis& axis, int64_t residues, int64_t sequences,
                 layout::TriangleWay triangle) {
  const int64_t fewest = sequences > 0 ? std::min(sequences, residues) : residues;
  if (axis.num_blocks() > 1 && fewest < axis.num_blocks()) {
    throw Error(base::invalid_argument(fmt::format(
        "{} residues and {} sequences in {} blocks of rows: each block has at least one "
        "of both; take {} blocks or fewer",
        residues, sequences, axis.num_blocks(), fewest)));
  }
  return {axis, extents_on(axis, sequences), extents_on(axis, residues), triangle};
}

at::Tensor internal::resharded(const at::Tensor& x, tensor::Cut from, tensor::Cut to,
                               const Axis& axis) {
  if (axis.degree() == 1) return x;
  const auto move = [axis](int64_t from_dim, const Extents& from_extents, int64_t to_dim,
                           const Extents& to_extents) {
    return [=](const at::Tensor& part) {
      return axis.transpose(part, {from_dim, from_extents}, {to_dim, to_extents});
    };
  };
  return comm::apply_linear(x, {move(from.dim, from.extents, to.dim, to.extents),
                                move(to.dim, to.extents, from.dim, from.extents)});
}

}  // namespace hanji::parallel::axial
