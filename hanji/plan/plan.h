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

namespace hanji::plan {

/// What the data offers; decided by whoever opened it.
struct DataFacts {
  int64_t vocabulary = 256;
  int64_t num_train_samples = 0;
  int64_t num_validation_samples = 0;
  bool operator==(const DataFacts&) const = default;
};

/// Every decision of a run, as one value: made once by the launcher, executed by the ranks, priced
/// by the simulator, compared by the report.
struct Plan {
  Config config;  ///< Resolved: no field is kAuto.
  ModelFacts model;
  DataFacts data;
  int ranks = 1;
  int threads = 1;                ///< Per rank.
  layout::MeshShape mesh;         ///< "dp"; "fsdp" where states are cut; others of degree above 1.
  std::vector<DataShare> shares;  ///< One per data coordinate.
  std::vector<std::vector<int>> cpus;  ///< Affinity mask of each rank; empty: not pinned.
  int64_t micro_batch = 1;             ///< Largest number of samples in one forward.
  KernelChoice kernels;
  int64_t num_buckets = 1;  ///< Of the gradients' all-reduce, each at most comm.bucket_bytes.
  std::vector<MemoryLine> memory;  ///< Of the rank that needs most.
  cost::Rates rates;
  HostLayout hosts;
  Prediction predicted;
  std::string job_hash;  ///< Of what decides the result: model, data, train; not ranks or kernels.
};

/// Of the data coordinate of a rank.
const DataShare& share_of(const Plan& plan, int rank);

/// Which grains each data coordinate owns: its share, counted in grains.
std::vector<layout::Range> grain_owners(const std::vector<DataShare>& shares, int64_t grain);

/// The grains of a step, and which each data coordinate owns, where bits are stable; else none.
struct StableGrains {
  int64_t count = 0;
  std::vector<layout::Range> owners = {};
};
StableGrains stable_grains(const Plan& plan);

/// Gradient buffers of a rank of each data coordinate: 1, or in stable those of its fold.
std::vector<int64_t> gradient_buffers(const Plan& plan);
/// Of the rank that needs most.
int64_t num_gradient_buffers(const Plan& plan);

/// What a rank does in a step: one stage, its data coordinate's micro-batches in turn.
schedule::ActionList step_actions(const Plan& plan, int rank);

/// How the plan's states are cut among ranks; none where each rank has all of them.
std::optional<ShardPlan> shards_of(const Plan& plan);

/// The GPUs that ranks may take, one each.
struct GpuFacts {
  int count = 0;
  int64_t free_bytes = 0;  ///< Of the one that has least; 0: unknown.
};

/// What make_plan() decides from.
struct PlanInputs {
  Config config = {};
  topology::Machine machine = {};
  cost::Rates rates = {};
  KernelChoice kernels = {};
  DataFacts data = {};
  std::vector<int> ranks_per_host = {};  ///< Empty: all on one. Else of as many ranks as there are.
  std::optional<cost::Network> link = {};  ///< Between hosts, if it was measured.
  std::optional<ModelFacts> model = {};    ///< Counted, where the family has no facts of its own.
  GpuFacts gpus = {};                      ///< Read where compute.device = cuda.
  std::span<const std::string_view> cut_axes = {};  ///< As find_contradictions() takes them.
};

/// Decides everything that the config left open and predicts the outcome.
///
/// Errors  invalid_argument names all contradictions between config, machine and data;
///         out_of_memory gives the table of bytes and what would fit.
Result<Plan> make_plan(const PlanInputs& inputs);

std::string to_json(const Plan& plan);

/// Strict: unknown, missing or mistyped members, values out of range and plans whose shares do not
/// add up are refused.
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
