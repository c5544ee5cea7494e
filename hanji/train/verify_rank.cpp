#include "hanji/train/verify_rank.h"

#include <fmt/format.h>

#include "hanji/base/file.h"
#include "hanji/compute/apply.h"
#include "hanji/compute/memory.h"
#include "hanji/plan/verifiable.h"
#include "hanji/train/job.h"
#include "hanji/train/meet.h"
#include "hanji/train/observe_rank.h"

namespace hanji::train {

std::filesystem::path rank_file(const std::filesystem::path& folder, int rank,
                                std::string_view extension) {
  return folder / fmt::format("rank.{}.{}", rank, extension);
}

void observe_into(const VerifyRankOptions& options, const plan::Plan& plan,
                  const Workload& workload, const comm::Group& group) {
  compute::apply(plan.kernels, plan.threads);
  compute::keep_freed_memory();
  // Others help to put its tensors together.
  ObserveOptions observe{.keep_step = options.keep_step};
  if (const double within = plan::verified_within(plan); within > 0) {
    observe.reference.emplace(options.folder, within);
  }
  if (group.rank() == options.keep_rank) {
    observe.keep_file = rank_file(options.folder, group.rank(), "safetensors");
  }
  ObservedParts parts;
  parts.assemble = [&](const plan::Plan& its, const comm::Group& ranks) {
    return assemble(its, ranks, workload.make);
  };
  const auto seen = observe_rank(plan, workload.dataset, group, observe, parts);
  base::throw_if_error(base::write_file_atomic(rank_file(options.folder, group.rank(), "json"),
                                               report::to_json(seen)));
}

void run_verify_rank(const VerifyRankOptions& options) {
  const world::World world = meet();
  try {
    const plan::Plan plan = plan::plan_from_json(world.plan_json()).or_throw();
    observe_into(options, plan, Workload{open_dataset(plan.config).or_throw()},
                 training_group(world, world.group(), plan));
  } catch (...) {
    fail_verb(world);
  }
}

}  // namespace hanji::train
