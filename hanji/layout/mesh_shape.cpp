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

bool is_data_axis(const Axis& axis) { return axis.name == "dp" || axis.name == "fsdp"; }

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

int MeshShape::degree(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &Axis::name);
  return found == axes_.end() ? 1 : found->degree;
}

std::vector<int> MeshShape::coordinates(int rank) const {
  std::vector<int> result(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    result[i] = rank % axes_[i].degree;
    rank /= axes_[i].degree;
  }
  return result;
}

int MeshShape::coordinate(int rank, std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &Axis::name);
  return found == axes_.end() ? 0 : coordinates(rank)[found - axes_.begin()];
}

std::vector<std::string> MeshShape::used_axes() const {
  std::vector<std::string> names;
  for (const Axis& axis : axes_) {
    if (axis.degree > 1) names.push_back(axis.name);
  }
  return names;
}

int MeshShape::rank_of(const std::vector<int>& coordinates) const {
  int rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) rank = rank * axes_[i].degree + coordinates[i];
  return rank;
}

Result<std::vector<int>> MeshShape::members(int rank, std::string_view axis) const {
  if (rank < 0 || rank >= world_size_) {
    return base::invalid_argument(
        fmt::format("rank {} lies outside a mesh of {} ranks", rank, world_size_));
  }
  const auto found = std::ranges::find(axes_, axis, &Axis::name);
  if (found == axes_.end()) {
    if (std::ranges::find(kAxisNames, axis) != kAxisNames.end()) return std::vector{rank};
    return base::not_found(fmt::format("the mesh {} has no axis '{}'", describe(axes_), axis));
  }
  std::vector<int> coordinate = coordinates(rank);
  std::vector<int> result;
  for (int i = 0; i < found->degree; ++i) {
    coordinate[found - axes_.begin()] = i;
    result.push_back(rank_of(coordinate));
  }
  return result;
}

int MeshShape::data_coordinate(int rank) const {
  return coordinate(rank, "dp") * degree("fsdp") + coordinate(rank, "fsdp");
}

std::vector<int> MeshShape::data_group(int rank) const {
  std::vector<int> ranks = varied(rank, is_data_axis);
  std::ranges::sort(ranks, {}, [&](int one) { return data_coordinate(one); });
  return ranks;
}

std::vector<int> MeshShape::gradient_group(int rank) const {
  std::vector<int> ranks = varied(rank, [](const Axis& axis) {
    return is_data_axis(axis) || axis.name == "cp" || axis.name == "axial";
  });
  std::ranges::stable_sort(ranks, {}, [&](int one) { return data_coordinate(one); });
  return ranks;
}

std::vector<int> MeshShape::data_peers(int rank) const {
  return varied(rank, [](const Axis& axis) { return !is_data_axis(axis); });
}

std::vector<int> MeshShape::varied(int rank, const std::function<bool(const Axis&)>& varies) const {
  const std::vector<int> own = coordinates(rank);
  std::vector<int> result = {0};
  for (size_t i = 0; i < axes_.size(); ++i) {
    const bool is_varied = varies(axes_[i]);
    const int first = is_varied ? 0 : own[i], end = is_varied ? axes_[i].degree : own[i] + 1;
    std::vector<int> longer;
    longer.reserve(result.size() * static_cast<size_t>(end - first));
    for (const int outer : result) {
      for (int one = first; one < end; ++one) longer.push_back(outer * axes_[i].degree + one);
    }
    result = std::move(longer);
  }
  return result;
}

std::string describe_coordinates(const MeshShape& mesh, int rank) {
  std::vector<std::string> parts;
  for (const std::string& axis : mesh.used_axes()) {
    parts.push_back(fmt::format("{}={}", axis, mesh.coordinate(rank, axis)));
  }
  return parts.size() > 1 ? fmt::format("{}", fmt::join(parts, ",")) : "";
}

std::string name_rank(const MeshShape& mesh, int rank) {
  const std::string coordinates = describe_coordinates(mesh, rank);
  return coordinates.empty() ? std::to_string(rank) : fmt::format("{} ({})", rank, coordinates);
}

std::vector<int64_t> nearest_divisors(int64_t ranks, int64_t degree, int64_t most) {
  int64_t below = std::min({degree, ranks, most});
  while (below > 1 && ranks % below != 0) --below;
  int64_t above = std::max<int64_t>(1, degree);
  while (above < ranks && ranks % above != 0) ++above;
  if (below == above || above > std::min(ranks, most)) return {std::max<int64_t>(1, below)};
  return {below, above};
}

}  // namespace hanji::layout
