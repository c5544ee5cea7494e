#include "hanji/plan/verifiable.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "hanji/layout/split.h"

namespace hanji::plan {

Status check_verifiable(const Plan& plan) {
  if (plan.config.compute.device == Device::kCuda) {
    return base::unsupported(
        "compute.device = cuda has kernels whose bits are not those of the one process on a CPU "
        "that ranks are compared with; set compute.device = \"cpu\"");
  }
  if (plan.config.mesh.pp > 1 && plan.config.train.bits != Bits::kStable) {
    return base::unsupported(
        "mesh.pp adds gradients of stages and norms of ranks in another order than one process; "
        "set "
        "train.bits = stable");
  }
  if (plan.config.mesh.tp > 1 && plan.config.train.bits != Bits::kStable) {
    return base::unsupported(fmt::format(
        "mesh.tp = {0} adds terms of several ranks, which one process adds in another order; set "
        "train.bits = stable and train.cuts.features = {0} or more",
        plan.config.mesh.tp));
  }
  if (plan.config.mesh.cp > 1 && plan.config.train.bits != Bits::kStable) {
    return base::unsupported(fmt::format(
        "mesh.cp = {0} adds terms of several ranks, which one process adds in another order; set "
        "train.bits = stable and train.cuts.tokens = {0} or more",
        plan.config.mesh.cp));
  }
  if (plan.config.mesh.axial > 1 && plan.config.train.bits != Bits::kStable) {
    return base::unsupported(fmt::format(
        "mesh.axial = {0} adds terms of several ranks, which one process adds in another order; "
        "set train.bits = stable and train.cuts.tokens = {0} or more",
        plan.config.mesh.axial));
  }
  if (const auto shards = shards_of(plan); shards && shards->groups > 1) {
    const bool whole_subtrees = std::has_single_bit(static_cast<unsigned>(shards->ranks));
    if (plan.config.train.bits == Bits::kRun && !whole_subtrees) {
      return base::unsupported(fmt::format(
          "groups of mesh.fsdp = {} ranks sum their gradients in an order that one process does "
          "not have; set train.bits = stable, or a mesh.fsdp that is a power of two",
          shards->ranks));
    }
  }
  if (plan.config.train.bits != Bits::kFast) return {};
  return base::unsupported(
      "train.bits = fast promises no bits that could be verified; set train.bits = run (this "
      "plan's bits) or stable (any plan's)");
}

Result<Plan> without_axis(const Plan& plan, std::string_view axis) {
  Plan less = plan;
  less.ranks /= plan.mesh.degree(axis);
  std::vector<layout::Axis> axes = plan.mesh.axes();
  for (layout::Axis& one : axes) {
    if (one.name == axis) one.degree = 1;
  }
  HANJI_ASSIGN_OR_RETURN(less.mesh, layout::MeshShape::create(std::move(axes), less.ranks));
  Config& config = less.config;
  for (const AxisKey& one : kAxisKeys) config.mesh.*one.degree = less.mesh.degree(one.axis);
  config.run.ranks = less.ranks;
  if (axis == "pp") config.pipeline = {};
  if (axis == "axial") config.parallel.triangle = TriangleWay::kAuto;
  if (axis == "cp") config.parallel.context = ContextWay::kAuto;
  config.train.split.clear();
  config.parallel.sequence &= less.mesh.degree("tp") > 1;
  less.cpus.resize(less.ranks);
  if (less.mesh.num_data_coordinates() == plan.mesh.num_data_coordinates()) return less;
  const int64_t grain = config.train.grain;
  HANJI_ASSIGN_OR_RETURN(const auto shares, layout::split_grains(config.train.global_batch / grain,
                                                                 less.mesh.num_data_coordinates()));
  less.shares.clear();
  for (const layout::Range grains : shares) {
    const layout::Range samples{grains.begin * grain, grains.end * grain};
    less.shares.push_back({samples, (samples.size() + less.micro_batch - 1) / less.micro_batch});
  }
  return less;
}

}  // namespace hanji::plan
