#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/plan/device_spec.h"
#include "hanji/plan/memory.h"
#include "hanji/plan/named_model.h"
#include "hanji/plan/sharding.h"
#include "hanji/plan/train_limits.h"

namespace hanji::plan {

/// A model on devices that need not be there.
struct CapacityQuery {
  NamedModel model;
  DeviceSpec device;
  ShardRanks ranks;
  int ranks_per_host = 8;
  StateWidths widths = kMixedAdam;
  int64_t micro_batch = 1;  ///< Samples of a forward.
  bool recompute = false;   ///< Layers keep their input alone and are computed twice.
  int64_t bucket_bytes = 25 << 20;
  double slack = 0.05;       ///< Of everything else: rounding and holes of the allocator.
  int64_t global_batch = 0;  ///< Samples of a step; 0: a micro-batch for each rank.
  /// Between hosts, each way, of one rank's adapter: HDR InfiniBand.
  double network_rate = 25e9;

  int hosts() const { return (ranks.ranks + ranks_per_host - 1) / ranks_per_host; }
};

/// What a strategy needs. Every list has the same categories: parameters, gradients, optimizer,
/// activations, buckets, unsharded units, staging, slack.
struct Capacity {
  Sharding sharding = Sharding::kReplicas;
  std::vector<MemoryLine> rank;    ///< Of the rank that needs most.
  std::vector<MemoryLine> host;    ///< Of all ranks of a full host; on CPUs what they share once.
  std::vector<MemoryLine> server;  ///< Of a server; empty for the others.
  bool fits = false;               ///< Rank, or host on CPUs, and server, each in a device.
  std::vector<TrainLimit> not_in_train;  ///< Why `hanji train` would reject it; empty: it trains.
};

/// Result  activations: what the backward pass needs of a micro-batch, the micro-batch, and buffers.
///         Buckets: gradients on their way to their owners, of two buckets (zero2) or two units
///         (zero3, hsdp); elsewhere gradients lie in their buckets. Unsharded units: parameters of
///         the two largest neighbours, one in use and one that is being gathered; none where all
///         ranks share a host's memory, in which parameters lie once. Staging: a bucket on its way
///         between hosts.
Capacity capacity_of(const CapacityQuery& query, Sharding sharding);

/// Of a model in states of these widths on such a device: products in bf16 where parameters are.
FactsOptions facts_options(const DeviceSpec& device, const StateWidths& widths);

/// Contradictions of a query, all at once.
Status check(const CapacityQuery& query);

/// The query as a run of `hanji train`.
TrainSetup setup_of(const CapacityQuery& query, Sharding sharding);

/// Tables per rank and per host, bars, what is not in `hanji train` yet, the verdict and what would fit: at most 80 columns.
std::string describe(const CapacityQuery& query);
/// The same numbers, in bytes.
std::string to_json(const CapacityQuery& query);
/// The bars of all strategies, per rank.
std::string to_svg(const CapacityQuery& query);

}  // namespace hanji::plan
