#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "hanji/base/kernel_choice.h"
#include "hanji/cost/named_algorithm.h"
#include "hanji/cost/rates.h"
#include "hanji/layout/bucket.h"
#include "hanji/layout/mesh_shape.h"
#include "hanji/layout/range.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/network.h"
#include "hanji/plan/reading.h"
#include "hanji/plan/shard_plan.h"
#include "hanji/plan/stage_traffic.h"
#include "hanji/schedule/step_list.h"

namespace hanji::plan {

/// What one data coordinate does in each step, each of its ranks with the same samples.
struct DataShare {
  layout::Range samples;          ///< Of the global batch, whole grains.
  int64_t num_micro_batches = 1;  ///< Each of at most Plan::micro_batch samples.
  bool operator==(const DataShare&) const = default;
};

/// Seconds of one step, of the slowest rank. Written before step 1 and never edited.
struct Prediction {
  double step_seconds = 0;
  double compute_seconds = 0;   ///< Forward, backward and optimizer.
  double transfer_seconds = 0;  ///< Bytes of all collectives of a step move; no waiting for ranks.
  double exposed_transfer_seconds = 0;  ///< Of it, what prolongs the step,
  double hidden_transfer_seconds = 0;   ///< and what moves while the rank computes.
  double data_seconds = 0;              ///< The step waits for its samples.
  double tokens_per_second = 0;         ///< Of all ranks.
  int64_t peak_bytes_per_rank = 0;
  int64_t wire_bytes_per_step = 0;     ///< Payload that ranks read from each other, all ranks.
  double network_seconds = 0;          ///< Of the transfer: between hosts.
  int64_t network_bytes_per_step = 0;  ///< Payload sent by messages over several hosts, all ranks.
  int64_t collectives_per_step = 0;    ///< Calls of one rank.
  int64_t stage_bytes_per_step = 0;    ///< Of the wire, between stages of a pipeline,
  int64_t layer_bytes_per_step = 0;    ///< and within layers that are cut. Not in a plan's JSON.
  /// Of what layers move, between hosts. Not in a plan's JSON.
  int64_t layer_network_bytes_per_step = 0;
  double layer_network_seconds = 0;
};

/// How ranks share out the layers of a model; without ranks they do not.
struct PipelineFacts {
  struct Tied {
    std::vector<int> ranks;  ///< Along mesh.pp, that have a copy of the parameter.
    int64_t parameter = 0;   ///< By index in the model.
  };
  std::vector<ModelFacts> ranks = {};  ///< What each of them has.
  /// Of forwards and backwards of a step, the bubble included; by data coordinate.
  std::vector<double> seconds = {};
  std::vector<Tied> tied = {};
  StageTraffic traffic = {};
  std::vector<int64_t> norm_sums = {};  ///< Partial sums of the norm; by rank of tp.
};

/// What a step is priced from.
struct StepFacts {
  ModelFacts model;
  PipelineFacts pipeline = {};
  base::KernelChoice kernels;
  OperationTimes times = {};  ///< Of these kernels, at the job's sizes.
  cost::Rates rates;
  cost::NamedAlgorithms algorithms = {};
  std::vector<DataShare> shares;  ///< One per data coordinate.
  int ranks = 1;                  ///< Of all data coordinates together.
  int cut = 1;                    ///< Ranks among which the model is cut.
  int terms = 1;          ///< Ranks of cp or axial: parts of the same samples, and all parameters.
  int blocks = 1;         ///< Of features, whose sums follow a tree; 1: whole products.
  int ranks_on_host = 1;  ///< Of the host that has most.
  int64_t micro_batch = 1;  ///< Samples of a forward, at most.
  int64_t bucket_bytes = 0;
  int64_t stable_grain = 0;     ///< Samples of a grain where sums are stable; 0: they are not.
  HostLayout hosts = {};        ///< Of all ranks,
  layout::MeshShape mesh = {};  ///< and their groups.
  std::optional<ShardPlan> shards = {};  ///< Of states that are cut among ranks.
  /// How often each unit is gathered, by rank of the pipeline; empty: ranks share one copy.
  std::vector<std::vector<int64_t>> gathers = {};
  bool served = false;  ///< By parameter servers on all ranks.
  Reading reading = {};
  int cores = 1;    ///< For a rank.
  int threads = 1;  ///< Of a rank, that compute.
};

/// Flat gradients of parameters of these sizes, in the buckets in which data_parallel reduces them.
layout::BucketPlan gradient_buckets(const std::vector<int64_t>& sizes, int64_t bucket_bytes,
                                    int64_t element_bytes = 4);

/// Prices one step whose samples are there: data_seconds and tokens_per_second are add_reading()'s.
///
/// Result  compute: the sum of the operations that were timed one by one, and the update; an estimate
///         where none were timed.
///         transfer: price of the very step lists that the ranks will run, one per bucket and
///         one small one. Inside a host all of it is exposed, since a rank moves its bytes with its
///         own core. Over several hosts as HostedCalls prices them; what is on the wire hides from
///         the moment that backward has finished a bucket, one bucket after another, until backward
///         ends. On GPUs compute is as OperationTimes::seconds_of() adds it up, with the read of one
///         number; no transfer is priced, as nobody has timed NCCL.
/// Errors  throws nothing.
Prediction predict(const StepFacts& facts);
/// The reading of the data coordinate with most samples, beside a step as predict() prices it.
ReadingFacts reading_facts(const StepFacts& facts, const Prediction& prediction);
/// Adds what facts.reading costs to what predict() has found, and what a step waits for pages of a file: a thread
/// of each host reads them meanwhile, so that they take as long as the step or longer.
void add_reading(const StepFacts& facts, Prediction& prediction);

}  // namespace hanji::plan
