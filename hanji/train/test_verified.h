#pragma once

#include "hanji/compute/apply.h"
#include "hanji/plan/verifiable.h"
#include "hanji/test/run_ranks.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/train/observe_rank.h"
#include "hanji/train/one_process.h"
#include "hanji/train/verify.h"
#include "hanji/train/verify_rank.h"

namespace hanji::train {

/// verify() of one process against ranks that are threads and run `parts`. `extend` changes the model of
/// the one process.
inline report::Certificate verified(
    const plan::Plan& plan, const Workload& workload, const ObservedParts& parts,
    const std::function<void(layers::Model&)>& extend = [](layers::Model&) {}) {
  compute::apply(plan.kernels, 1);
  const test::TemporaryFolder folder;
  const auto observed = [&](const VerifiedRun& run, int rank) {
    ObserveOptions options;
    const double within = plan::verified_within(run.plan);
    const std::filesystem::path reference = observed_folder(folder.path(), run.without);
    if (rank >= 0 && within > 0) options.reference.emplace(reference, within);
    if (run.keep) {
      options.keep_step = run.keep->step;  // of all: they put whole tensors together
      if (rank < 0 || rank == run.keep->rank) {
        options.keep_file = rank_file(folder.path(), rank, "safetensors");
      }
    } else if (rank < 0 && within > 0) {
      std::filesystem::create_directories(reference);
      options.reference_folder = reference;
    }
    return options;
  };
  const auto one_process = [&](const VerifiedRun& run) {
    OneProcess job(run.plan, workload.dataset, workload.make);
    extend(job.model());
    return observe(job, run.plan.config.train.steps, observed(run, -1));
  };
  const auto ranks = [&](const VerifiedRun& run) {
    std::vector<report::ObservedRun> seen(run.plan.ranks);
    test::run_ranks(run.plan.ranks, [&](world::World& world) {
      seen[world.rank()] = observe_rank(run.plan, workload.dataset, world.group(),
                                        observed(run, world.rank()), parts);
    });
    return seen;
  };
  return verify(
      plan, {.one_process = one_process,
             .ranks = ranks,
             .one_process_file = rank_file(folder.path(), -1, "safetensors"),
             .rank_file = [&](int rank) { return rank_file(folder.path(), rank, "safetensors"); }});
}

}  // namespace hanji::train
