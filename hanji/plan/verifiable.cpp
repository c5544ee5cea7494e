#include "hanji/plan/verifiable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "hanji/base/units.h"
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

/// Sums that only stable bits have in the order of one process.
std::vector<std::string> sums_of_another_order(const Plan& plan) {
  std::vector<std::string> found;
  if (plan.config.train.bits == Bits::kStable) return found;
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
  if (has_groups && !std::has_single_bit(static_cast<unsigned>(shards->ranks))) {
    found.push_back(
        fmt::format("groups of mesh.fsdp = {} sum their gradients in an order that one "
                    "process does not have; set train.bits = stable, or a mesh.fsdp that is a "
                    "power of two",
                    base::counted(shards->ranks, "rank")));
  }
  if (plan.config.train.bits == Bits::kFast) {
    found.emplace_back(
        "train.bits = fast promises no bits that could be verified; set train.bits = run (this "
        "plan's bits) or stable (any plan's)");
  }
  return found;
}

/// Of the one process after a step: parameters, gradients and two moments, in float64.
int64_t state_bytes(const Plan& plan) {
  int64_t elements = 0;
  for (const ParameterFacts& one : plan.model.parameters) {
    elements += one.parts.empty() ? one.elements
                                  : std::accumulate(one.parts.begin(), one.parts.end(), int64_t{0});
  }
  constexpr int64_t kTensors = 4;
  return kTensors * elements * static_cast<int64_t>(sizeof(double));
}

/// Why sums of another order are not compared within a bound; empty: they are.
std::string beyond_bound(const Plan& plan) {
  const bool is_float64 = plan.config.compute.dtype == Precision::kFloat64;
  if (!is_float64 || plan.config.train.epsilon < kVerifiedEpsilon) {
    return fmt::format(
        "or set compute.dtype = float64 and train.epsilon = {:g}: ranks are then compared with one "
        "process within {:g} of each tensor's largest value",
        kVerifiedEpsilon, kVerifiedWithin);
  }
  const int64_t bytes = state_bytes(plan);
  const int64_t most = kMaxVerifiedBytes / bytes - 1;
  if (plan.config.train.steps <= most) return "";
  return fmt::format(
      "within {:g} of each tensor's largest value ranks are compared with tensors that one process "
      "keeps, {} after each of {}, of at most {} in all; set {}",
      kVerifiedWithin, base::format_bytes(bytes), base::counted(plan.config.train.steps, "step"),
      base::format_bytes(kMaxVerifiedBytes),
      most > 0 ? fmt::format("train.steps = {} or less", most) : "a smaller model");
}

}  // namespace

Status check_verifiable(const Plan& plan) {
  std::vector<std::string> found = sums_of_another_order(plan);
  if (!found.empty()) {
    found.push_back(beyond_bound(plan));
    if (found.back().empty()) found.clear();
  }
  if (plan.config.compute.device == Device::kCuda) {
    found.emplace_back(
        "compute.device = cuda has kernels whose bits are not those of the one process on a CPU "
        "that ranks are compared with; set compute.device = \"cpu\"");
  }
  return found.empty() ? Status() : base::unsupported(fmt::format("{}", fmt::join(found, "\n")));
}

double verified_within(const Plan& plan) {
  return sums_of_another_order(plan).empty() ? 0 : kVerifiedWithin;
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
