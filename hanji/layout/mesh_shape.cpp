#include "hanji/layout/mesh_shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace hanji::layout {
namespace {

std::string describe(const std::vector<Axis>& axes) {
  std::vector<std::string> parts;
  for (const Axis& axis : axes) parts.push_back(fmt::format("{} {}", axis.name, axis.degree));
  return fmt::format("({})", fmt::join(parts, ", "));
}

}  // namespace

Result<MeshShape> MeshShape::create(std::vector<Axis> axes, int world_size) {
  int64_t product = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto same = [&](const Axis& other) { return other.name == axes[i].name; };
    if (axes[i].name.empty())
      return base::invalid_argument(fmt::format("mesh axis {} has no name", i));
    if (std::find_if(axes.begin(), axes.begin() + i, same) != axes.begin() + i) {
      return base::invalid_argument(fmt::format("mesh axis '{}' is given twice", axes[i].name));
    }
    if (axes[i].degree < 1) {
      return base::invalid_argument(fmt::format("mesh axis '{}' has degree {}; degrees start at 1",
                                                axes[i].name, axes[i].degree));
    }
    product = std::min<int64_t>(product * axes[i].degree, int64_t{1} << 31);
  }
  if (product != world_size) {
    return base::invalid_argument(
        fmt::format("mesh {} has {} ranks but the world has {}; the product "
                    "of the degrees must be the world's size",
                    describe(axes), product, world_size));
  }
  return MeshShape(std::move(axes), world_size);
}

std::vector<int> MeshShape::coordinates(int rank) const {
  std::vector<int> result(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    result[i] = rank % axes_[i].degree;
    rank /= axes_[i].degree;
  }
  return result;
}

int MeshShape::rank_of(const std::vector<int>& coordinates) const {
  int rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) rank = rank * axes_[i].degree + coordinates[i];
  return rank;
}

Result<std::vector<int>> MeshShape::members(int rank, std::string_view axis) const {
  const auto found = std::find_if(axes_.begin(), axes_.end(),
                                  [&](const Axis& candidate) { return candidate.name == axis; });
  if (found == axes_.end()) {
    return base::not_found(fmt::format("the mesh {} has no axis '{}'", describe(axes_), axis));
  }
  if (rank < 0 || rank >= world_size_) {
    return base::invalid_argument(
        fmt::format("rank {} lies outside a mesh of {} ranks", rank, world_size_));
  }
  std::vector<int> coordinate = coordinates(rank);
  std::vector<int> result;
  for (int i = 0; i < found->degree; ++i) {
    coordinate[found - axes_.begin()] = i;
    result.push_back(rank_of(coordinate));
  }
  return result;
}

}  // namespace hanji::layout
