#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/cost/rates.h"
#include "hanji/layout/mesh_shape.h"
#include "hanji/layout/range.h"
#include "hanji/plan/config.h"
#include "hanji/plan/memory.h"
#include "hanji/plan/model_spec.h"
#include "hanji/topology/machine.h"

namespace hanji::plan {

/// The kernels of a run and the measurement that chose them. Neither member is kAuto in a Plan.
struct KernelChoice {
  Gemm gemm = Gemm::kMkl;
  Attention attention = Attention::kFlash;
  Precision precision = Precision::kFloat32;
  double gemm_flops_per_second = 0;  ///< Of one rank, on the model's shapes, all ranks busy.
  double gemm_error = 0;             ///< Largest error over the largest result, against float64.
  double attention_flops_per_second = 0;  ///< The same; counts the lower triangle only.
  double attention_error = 0;
  std::string why;  ///< One sentence: what lost, and by how much.
  bool operator==(const KernelChoice&) const = default;
};

/// What one rank does in each step.
struct RankShare {
  layout::Range samples;          ///< Of the global batch, whole grains.
  int64_t num_micro_batches = 1;  ///< Each of at most Plan::micro_batch samples.
  std::vector<int> cpus;          ///< Its affinity mask; empty: not pinned.
  bool operator==(const RankShare&) const = default;
};

/// What the data offers; decided by whoever opened it.
struct DataFacts {
  int64_t vocabulary = 256;
  int64_t num_train_samples = 0;
  int64_t num_validation_samples = 0;
  bool operator==(const DataFacts&) const = default;
};

/// Seconds of one step, of the slowest rank. Written before step 1 and never edited.
struct Prediction {
  double step_seconds = 0;
  double compute_seconds = 0;        ///< Forward, backward and optimizer.
  double communication_seconds = 0;  ///< All collectives of a step, end to end.
  double exposed_communication_seconds = 0;
  double data_seconds = 0;
  double tokens_per_second = 0;  ///< Of all ranks.
  int64_t peak_bytes_per_rank = 0;
  int64_t wire_bytes_per_step = 0;  ///< Payload that ranks read from each other, all ranks.
};

/// Every decision of a run, as one value: made once by the launcher, executed by the ranks, priced
/// by the simulator, compared by the report.
struct Plan {
  Config config;  ///< Resolved: no field is kAuto.
  ModelSpec model;
  DataFacts data;
  int ranks = 1;
  int threads = 1;  ///< Per rank.
  std::vector<layout::Axis> mesh;
  std::vector<RankShare> shares;  ///< One per rank.
  int64_t micro_batch = 1;        ///< Largest number of samples in one forward.
  KernelChoice kernels;
  int64_t num_buckets = 1;  ///< Of the gradients' all-reduce, each at most comm.bucket_bytes.
  std::vector<MemoryLine> memory;  ///< Of the rank that needs most.
  cost::Rates rates;
  Prediction predicted;
  std::string job_hash;  ///< Of what decides the result: model, data, train; not ranks or kernels.
};

/// What make_plan() decides from.
struct PlanInputs {
  Config config;
  topology::Machine machine;
  cost::Rates rates;
  KernelChoice kernels;
  DataFacts data;
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

/// The table printed before step 1: at most 80 columns, plain ASCII.
std::string describe(const Plan& plan);

}  // namespace hanji::plan
