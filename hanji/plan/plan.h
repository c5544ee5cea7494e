#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/cost/rates.h"
#include "hanji/layout/mesh_shape.h"
#include "hanji/plan/config.h"
#include "hanji/plan/memory.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/network.h"
#include "hanji/plan/predict.h"
#include "hanji/plan/shard_plan.h"
#include "hanji/schedule/action.h"
#include "hanji/topology/machine.h"
#include "hanji/topology/wait_policy.h"

namespace hanji::plan {

/// What the data offers, as the opened dataset reports it.
struct DataFacts {
  int64_t vocabulary = 256;
  int64_t num_train_samples = 0;
  int64_t num_validation_samples = 0;
  int64_t page_bytes = 0;  ///< Of the pages of data.files that the ranks of a host cache; else 0.
  bool operator==(const DataFacts&) const = default;
};

/// Every decision of a run, as one value: made once by the launcher, executed by the ranks,
/// compared with the run by the report.
struct Plan {
  Config config;  ///< Resolved: no field is kAuto.
  ModelFacts model;
  DataFacts data;
  int ranks = 1;
  int threads = 1;                ///< Per rank.
  layout::MeshShape mesh;         ///< "dp"; "fsdp" if state is sharded; others of degree above 1.
  std::vector<DataShare> shares;  ///< One per data coordinate.
  std::vector<std::vector<int>> cpus;  ///< Affinity mask of each rank; empty: not pinned.
  int64_t micro_batch = 1;             ///< Largest number of samples in one forward.
  int64_t micro_batch_wanted =
      0;  ///< What it would be, if memory had not halved it; 0: it has not.
  KernelChoice kernels;
  OperationTimes times = {};  ///< Of these kernels, at the job's sizes.
  int64_t num_buckets = 1;    ///< Of the gradients' all-reduce, each at most comm.bucket_bytes.
  std::vector<MemoryLine> memory;  ///< Bytes of tensors on the rank with the maximum.
  ProcessMemory process = {};      ///< Memory of each rank's process beside these; unknown on GPUs.
  cost::Rates rates;
  double load = 0;                  ///< Load, as in PlanInputs.
  topology::WaitChoice waits = {};  ///< How the threads of each rank wait for one another.
  HostLayout hosts;
  Prediction predicted;
  std::string job_hash;  ///< Of the keys that determine the result: model, data, train.
};

/// The share of a rank's data coordinate.
const DataShare& share_of(const Plan& plan, int rank);

/// The grains of each data coordinate: its share, counted in grains.
std::vector<layout::Range> grain_owners(const std::vector<DataShare>& shares, int64_t grain);

/// For stable bits, the grains of a step and their owners; else none.
struct StableGrains {
  int64_t count = 0;
  std::vector<layout::Range> owners = {};
};
StableGrains stable_grains(const Plan& plan);
/// Stable: the grains of a rank in the order in which backwards of one of its stages take them.
std::vector<int64_t> grains_in_order(const Plan& plan, int rank, int stage);

/// Gradient buffers of a rank of each data coordinate: 1, or for stable bits those of its folds.
std::vector<int64_t> gradient_buffers(const Plan& plan);
/// The maximum over ranks.
int64_t num_gradient_buffers(const Plan& plan);

/// The actions of a rank in a step, of the micro-batches of its data coordinate: of all layers, or of its
/// stages of a pipeline.
schedule::ActionList step_actions(const Plan& plan, int rank);
/// The same without unshards and reshards.
schedule::ActionList compute_actions(const Plan& plan, int rank);

/// Ranks of axial or cp that each have a term of the gradients of their samples, and with them a shard of states;
/// in stable 1, as their layers add the terms up.
int ranks_of_terms(const Plan& plan);
/// By which of the shards of shards_of() a rank has.
int shard_index(const Plan& plan, int rank);

/// The ranks among which a state is cut of which `rank` has a shard, by shard_index().
std::vector<int> shard_group(const Plan& plan, int rank);

/// Those of axial, tp and cp, along which layers call, of which a group lies on several hosts.
std::vector<std::string_view> axes_over_hosts(const Plan& plan);

/// Whether ranks that cut one state among them lie on several hosts; then every rank has its shards for
/// itself.
bool shards_span_hosts(const Plan& plan);

/// How the states that a rank and others have are cut among them; none where each has all of them.
std::optional<ShardPlan> shards_of(const Plan& plan, int rank = 0);

/// The GPUs for ranks, one each.
struct GpuFacts {
  int count = 0;
  int64_t free_bytes = 0;  ///< The minimum over GPUs; 0: unknown.
};

/// The inputs of make_plan().
struct PlanInputs {
  Config config = {};
  topology::Machine machine = {};
  cost::Rates rates = {};
  KernelChoice kernels = {};
  OperationTimes times = {};
  double load =
      0;  ///< The largest share of CPUs that others used while kernels, rates or times were taken.
  double cpus_of_others = 0;      ///< Now, as topology::look_at_others() gives.
  std::string wait_setting = {};  ///< The user's setting, as in topology::WaitFacts.
  DataFacts data = {};
  std::vector<int> ranks_per_host = {};    ///< Empty: one host. Else for all ranks.
  std::optional<cost::Network> link = {};  ///< Between hosts, if it was measured.
  std::optional<ModelFacts> model = {};    ///< Counted, if the family computes none.
  GpuFacts gpus = {};                      ///< Used if compute.device = cuda.
  ProcessMemory process = {};              ///< Memory of a rank's process, as measured on this one.
  bool are_started = false;  ///< Ranks are there: what is free no longer has their processes.
  std::span<const std::string_view> cut_axes = {};  ///< As in find_contradictions().
};

/// Checks that what is free holds the processes of the ranks: before anything is counted or timed for them,
/// as the kernel then kills without a word. Ranks that are not decided count as one.
/// Errors  out_of_memory, with the limit and what a process takes.
Status check_processes(const PlanInputs& inputs);

/// Decides every key that is not set, and predicts time and memory.
///
/// Errors  invalid_argument with all contradictions between config, machine and data;
///         out_of_memory with the table of bytes and the changes that fit.
Result<Plan> make_plan(const PlanInputs& inputs);

std::string to_json(const Plan& plan);

/// Strict: unknown, missing or mistyped members, values out of range and plans whose shares do not
/// add up are rejected.
///
/// Errors  corrupt names the member.
Result<Plan> plan_from_json(std::string_view text);

/// The "kernels" member of a plan.
std::string kernels_to_json(const KernelChoice& kernels);
/// Strict. Errors: corrupt.
Result<KernelChoice> kernels_from_json(std::string_view text);

/// The table printed before step 1: at most 80 columns, plain ASCII.
std::string describe(const Plan& plan);

}  // namespace hanji::plan
