#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::layout {

/// One direction of the mesh, e.g. {"dp", 4}.
struct Axis {
  std::string name;
  int degree = 1;

  bool operator==(const Axis&) const = default;
};

/// The grid of ranks: rank = row-major index of its coordinates, the last axis runs fastest.
class MeshShape {
 public:
  /// Errors  invalid_argument if a name is empty or used twice, a degree is below 1, or the
  ///         degrees' product differs from world_size.
  static Result<MeshShape> create(std::vector<Axis> axes, int world_size);

  const std::vector<Axis>& axes() const { return axes_; }
  int world_size() const { return world_size_; }

  /// One coordinate per axis; rank in [0, world_size).
  std::vector<int> coordinates(int rank) const;
  /// Inverse of coordinates().
  int rank_of(const std::vector<int>& coordinates) const;
  /// The ranks that differ from `rank` along the axis only, in order, itself included.
  /// Errors  not_found, naming the axes there are; invalid_argument for a rank outside the mesh.
  Result<std::vector<int>> members(int rank, std::string_view axis) const;

 private:
  MeshShape(std::vector<Axis> axes, int world_size)
      : axes_(std::move(axes)), world_size_(world_size) {}

  std::vector<Axis> axes_;
  int world_size_;
};

}  // namespace hanji::layout
