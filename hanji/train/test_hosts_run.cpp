#include "hanji/train/test_hosts_run.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "hanji/checkpoint/folder.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/comm/hierarchical/test_hosts.h"
#include "hanji/train/state.h"

namespace hanji::train {
namespace {

void save_parts(const Job& job, int64_t steps, const std::filesystem::path& folder) {
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

}  // namespace

std::vector<JobRun> run_job_on_hosts(const plan::Plan& plan, const std::vector<int>& hosts,
                                     const Dataset& dataset, const Tampering& tampering) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  const auto join_of = [&](int rank) {
    return comm::gloo::make_join(store, rank, comm::gloo::kLoopback);
  };
  std::vector<JobRun> runs(plan.ranks);
  comm::hierarchical::run_hosts(hosts, join_of, [&](const comm::Group& group) {
    runs[group.rank()] = run_rank(plan, dataset, group, tampering);
  });
  return runs;
}

std::string hash_restored(const Job& job, const plan::Plan& plan,
                          const std::filesystem::path& folder) {
  const int64_t steps = plan.config.train.steps;
  save_parts(job, steps, folder);
  Job other = assemble(plan, job.group);
  if (restore(other, folder / checkpoint::folder_name(steps)).or_throw() != steps) {
    throw Error(base::internal("another step was restored"));
  }
  comm::barrier(job.group, {.label = "restored"});
  check_parameters(other);
  return hashes_of(other).state;
}

}  // namespace hanji::train
