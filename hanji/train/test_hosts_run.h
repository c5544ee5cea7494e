#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "hanji/checkpoint/folder.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/hierarchical/test_hosts.h"
#include "hanji/compute/apply.h"
#include "hanji/plan/plan.h"
#include "hanji/train/loop.h"
#include "hanji/train/state.h"

namespace hanji::train {

/// What a job of ranks on several hosts ends with.
struct HostsRun {
  std::string hash;
  int64_t network_bytes = 0;  ///< Of a step, all ranks.
  int64_t collectives = 0;
  std::vector<int64_t> staging;       ///< Bytes by rank, that the engine keeps after the steps.
  std::vector<std::string> restored;  ///< Hashes by rank, after restore() in a second job.
};

/// Every rank writes its part.
inline void save_parts(const Job& job, int64_t steps, const std::filesystem::path& folder) {
  const OwnState own = own_state(job);
  checkpoint::SaveOptions options{.folder = folder, .copy_bytes = 1000};
  options.writer.num_parts = own.num_parts;
  if (job.group.rank() == 0) {
    base::throw_if_error(checkpoint::begin_checkpoint(options, steps, {}));
  }
  comm::barrier(job.group, {.label = "begun"});
  if (own.part) {
    options.writer.part = *own.part;
    base::throw_if_error(checkpoint::save_checkpoint(options, state_to_save(job), {.step = steps}));
  }
  comm::barrier(job.group, {.label = "saved"});
}

/// Two steps of ranks[h] ranks on each host h, with small buckets.
inline void set_steps_on_hosts(plan::PlanInputs& inputs, const std::vector<int>& ranks,
                               plan::Bits bits) {
  if (ranks.size() > 1) inputs.ranks_per_host = ranks;
  plan::Config& config = inputs.config;
  config.run.ranks = std::reduce(ranks.begin(), ranks.end());
  config.train.bits = bits;
  config.train.steps = 2;
  config.train.global_batch = 12;
  config.train.micro_batch = bits == plan::Bits::kStable ? plan::kAuto : 2;
  config.train.evaluate_batches = 1;
  config.comm.bucket_bytes = 1 << 14;
}

/// Runs the plan on threads, ranks[h] of them on "host" h, joined by what `join_of` gives for each rank, saves in
/// `folder` and restores.
inline HostsRun run_on_hosts(const plan::Plan& plan, const std::vector<int>& ranks,
                             const std::function<comm::hierarchical::Join(int rank)>& join_of,
                             const Dataset& dataset, const std::filesystem::path& folder) {
  HostsRun found;
  std::vector<int64_t> bytes(plan.ranks);
  found.restored.resize(plan.ranks);
  found.staging.resize(plan.ranks);
  const int64_t steps = plan.config.train.steps;
  comm::hierarchical::run_hosts(ranks, join_of, [&](const comm::Group& group) {
    compute::apply(plan.kernels, 1);
    PrivateMemory memory;
    StopSignal stop = StopSignal::create().or_throw();
    Job job = assemble(plan, group);
    EXPECT_EQ(job.strategy->sharers() != nullptr, plan::shards_span_hosts(plan));
    const LoopOutcome outcome = run_loop(job, {.plan = plan,
                                               .dataset = dataset,
                                               .memory = memory,
                                               .stop = stop,
                                               .save = [](int64_t, double) {},
                                               .before_update = [] {}});
    bytes[group.rank()] = outcome.network_bytes_per_step;
    for (const auto& [category, used] : group.heap().usage()) {
      if (category == "staging between hosts") found.staging[group.rank()] += used;
    }
    const std::string hash = hashes_of(job).state;
    if (group.rank() == 0) {
      found.hash = hash;
      found.collectives = outcome.collectives_per_step;
    }
    save_parts(job, steps, folder);
    Job other = assemble(plan, group);
    EXPECT_EQ(restore(other, folder / checkpoint::folder_name(steps)).or_throw(), steps);
    comm::barrier(group, {.label = "restored"});
    check_parameters(other);
    found.restored[group.rank()] = hashes_of(other).state;
  });
  found.network_bytes = std::reduce(bytes.begin(), bytes.end());
  return found;
}

}  // namespace hanji::train
