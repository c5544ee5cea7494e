#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::layout {

/// The axes of a training step, outer to inner; "axial" stands in the place of "tp".
inline constexpr std::array<std::string_view, 6> kAxisNames = {"pp", "dp", "fsdp",
                                                               "cp", "tp", "axial"};

/// One direction of the mesh, e.g. {"dp", 4}.
struct Axis {
  std::string name;
  int degree = 1;

  bool operator==(const Axis&) const = default;
};

/// The grid of ranks: rank = row-major index of its coordinates, the last axis runs fastest.
///
/// The ranks of one *data coordinate*, the coordinate over "dp" and "fsdp", see the same samples:
/// shares, grains, losses and tokens are counted by it, once for all of its ranks.
class MeshShape {
 public:
  MeshShape() = default;  ///< A world of one rank, without axes.
  /// Errors  invalid_argument if a name is empty or used twice, a degree is below 1, or the
  ///         degrees' product differs from world_size.
  static Result<MeshShape> create(std::vector<Axis> axes, int world_size);

  const std::vector<Axis>& axes() const { return axes_; }
  /// The names of those of more than one rank.
  std::vector<std::string> used_axes() const;
  int world_size() const { return world_size_; }
  /// 1 of an axis that the mesh does not have.
  int degree(std::string_view axis) const;

  /// One coordinate per axis; rank in [0, world_size).
  std::vector<int> coordinates(int rank) const;
  /// 0 along an axis that the mesh does not have.
  int coordinate(int rank, std::string_view axis) const;
  /// Inverse of coordinates().
  int rank_of(const std::vector<int>& coordinates) const;
  /// The ranks that differ from `rank` along the axis only, in order, itself included; that rank
  /// alone along one of kAxisNames that the mesh does not have.
  /// Errors  not_found, naming the axes there are; invalid_argument for a rank outside the mesh.
  Result<std::vector<int>> members(int rank, std::string_view axis) const;

  int num_data_coordinates() const { return degree("dp") * degree("fsdp"); }
  /// In [0, num_data_coordinates()), "fsdp" running fastest.
  int data_coordinate(int rank) const;
  /// One rank of each data coordinate, in their order, `rank` among them: they differ along "dp"
  /// and "fsdp" only, and sum gradients and losses.
  std::vector<int> data_group(int rank) const;
  /// The ranks whose gradients of this rank's parameters add up, "cp" and "axial" running fastest: those of
  /// data_group() and, of each, all that have other parts of its samples.
  std::vector<int> gradient_group(int rank) const;
  /// The ranks of the same data coordinate, in order, `rank` among them.
  std::vector<int> data_peers(int rank) const;

  bool operator==(const MeshShape&) const = default;

 private:
  MeshShape(std::vector<Axis> axes, int world_size)
      : axes_(std::move(axes)), world_size_(world_size) {}
  /// The ranks whose coordinates are those of `rank`, but for the axes that `varies` is true of.
  std::vector<int> varied(int rank, const std::function<bool(const Axis&)>& varies) const;

  std::vector<Axis> axes_;
  int world_size_ = 1;
};

/// The coordinates of a rank, "dp=1,tp=0", of axes of degree above 1; empty with at most one of them,
/// along which the coordinate is the rank.
std::string describe_coordinates(const MeshShape& mesh, int rank);

/// "3 (dp=1,tp=0)" where there are coordinates to describe, else "3".
std::string name_rank(const MeshShape& mesh, int rank);

/// The degrees nearest to `degree` that divide `ranks` and are at most `most`: the next below and above
/// it, or itself.
std::vector<int64_t> nearest_divisors(int64_t ranks, int64_t degree, int64_t most = INT64_MAX);

}  // namespace hanji::layout
