#include "hanji/mesh/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace hanji::mesh {

Mesh::Mesh(const comm::Group& world, std::vector<layout::Axis> axes)
    : shape_(layout::MeshShape::create(std::move(axes), world.size()).or_throw()),
      coordinates_(shape_.coordinates(world.rank())),
      alone_(world.subgroup({world.rank()}, "alone")) {
  for (const layout::Axis& axis : shape_.axes()) {
    const auto members = shape_.members(world.rank(), axis.name).or_throw();
    groups_.push_back(world.subgroup(members, axis.name));
  }
}

const comm::Group& Mesh::operator[](std::string_view axis) const {
  std::string names;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const std::string& name = shape_.axes()[i].name;
    if (name == axis) return groups_[i];
    names += (names.empty() ? "" : ", ") + name;
  }
  if (std::ranges::find(layout::kAxisNames, axis) != layout::kAxisNames.end()) return alone_;
  throw Error(base::not_found(fmt::format("the mesh has no axis '{}'; it has {}", axis, names)));
}

}  // namespace hanji::mesh
