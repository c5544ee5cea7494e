#pragma once

#include <string_view>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/layout/mesh_shape.h"

namespace hanji::mesh {

/// The grid of ranks, bound to one group per axis: those that differ along this axis only.
///
/// An axis of degree 1 has a group too, of this rank alone, and so has each of layout::kAxisNames
/// that was not given. A cheap handle's size: copies share the groups.
class Mesh {
 public:
  /// Order   every rank of `world` calls it, with the same axes; a small all_gather per axis, and one more.
  /// Errors  throws Error(kInvalidArgument) as layout::MeshShape::create(), e.g. if the degrees'
  ///         product is not the world's size.
  Mesh(const comm::Group& world, std::vector<layout::Axis> axes);

  /// This rank's group along `axis`; its rank in it is its coordinate.
  /// Errors  throws Error(kNotFound), naming the axes there are.
  const comm::Group& operator[](std::string_view axis) const;

  const layout::MeshShape& shape() const { return shape_; }
  /// One per axis.
  const std::vector<int>& coordinates() const { return coordinates_; }

 private:
  layout::MeshShape shape_;
  std::vector<int> coordinates_;
  std::vector<comm::Group> groups_;
  comm::Group alone_;
};

}  // namespace hanji::mesh
