#include "hanji/plan/verifiable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "hanji/layout/split.h"

namespace hanji::plan {

namespace {

/// An axis whose ranks add terms of one sum, and the key of the blocks that fix their order.
struct SummingAxis {
  std::string_view axis;
  int64_t MeshConfig::*degree;
  std::string_view cuts;
};

constexpr std::array<SummingAxis, 3> kSummingAxes = {
    {{"tp", &MeshConfig::tp, "train.cuts.features"},
     {"cp", &MeshConfig::cp, "train.cuts.tokens"},
     {"axial", &MeshConfig::axial, "train.cuts.tokens"}}};

/// Sums of ranks that only stable bits have in the order of one process.
std::vector<std::string> sums_of_another_order(const Plan& plan) {
  std::vector<std::string> found;
  if (plan.config.mesh.pp > 1) {
    found.emplace_back(
        "mesh.pp adds gradients of stages and norms of ranks in another order than one process; "
        "set train.bits = stable");
  }
  for (const SummingAxis& one : kSummingAxes) {
    const int64_t degree = plan.config.mesh.*one.degree;
    if (degree <= 1) continue;
    found.push_back(fmt::format(
        "mesh.{0} = {1} adds terms of several ranks, which one process adds in another order; set "
        "train.bits = stable and {2} = {1} or more",
        one.axis, degree, one.cuts));
  }
  const auto shards = shards_of(plan);
  const bool has_groups = shards && shards->groups > 1;
  if (has_groups && plan.config.train.bits == Bits::kRun &&
      !std::has_single_bit(static_cast<unsigned>(shards->ranks))) {
    found.push_back(
        fmt::format("groups of mesh.fsdp = {} ranks sum their gradients in an order that one "
                    "process does not have; set train.bits = stable, or a mesh.fsdp that is a "
                    "power of two",
                    shards->ranks));
  }
  return found;
}

}  // namespace

Status check_verifiable(const Plan& plan) {
  const Bits bits = plan.config.train.bits;
  std::vector<std::string> found;
  if (bits != Bits::kStable) found = sums_of_another_order(plan);
  if (plan.config.compute.device == Device::kCuda) {
    found.emplace_back(
        "compute.device = cuda has kernels whose bits are not those of the one process on a CPU "
        "that ranks are compared with; set compute.device = \"cpu\"");
  }
  if (bits == Bits::kFast) {
    found.emplace_back(
        "train.bits = fast promises no bits that could be verified; set train.bits = run (this "
        "plan's bits) or stable (any plan's)");
  }
  return found.empty() ? Status() : base::unsupported(fmt::format("{}", fmt::join(found, "\n")));
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
