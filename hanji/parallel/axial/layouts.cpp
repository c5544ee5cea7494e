#include "hanji/parallel/axial/layouts.h"

#include "hanji/comm/linear_map.h"
#include "hanji/layout/axial_block.h"

namespace hanji::parallel::axial {

Extents extents_on(const Axis& axis, int64_t size) {
  Extents extents;
  for (int rank = 0; rank < axis.degree(); ++rank) {
    extents.push_back(layout::axial_rows(size, rank, axis.degree()));
  }
  return extents;
}

Places places_on(const Axis& axis, int64_t residues, int64_t sequences,
                 layout::TriangleWay triangle) {
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
