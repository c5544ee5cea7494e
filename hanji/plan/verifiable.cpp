#include "hanji/plan/verifiable.h"

#include <fmt/format.h>

#include <bit>

namespace hanji::plan {

Status check_verifiable(const Plan& plan) {
  if (plan.config.compute.device == Device::kCuda) {
    return base::unsupported(
        "compute.device = cuda has kernels whose bits are not those of the one process on a CPU "
        "that ranks are compared with; set compute.device = \"cpu\"");
  }
  if (plan.config.mesh.tp > 1 && plan.config.train.bits != Bits::kStable) {
    return base::unsupported(fmt::format(
        "mesh.tp = {0} adds terms of several ranks, which one process adds in another order; set "
        "train.bits = stable and train.cuts.features = {0} or more",
        plan.config.mesh.tp));
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

}  // namespace hanji::plan
