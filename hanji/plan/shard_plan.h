#pragma once

#include <cstdint>
#include <vector>

#include "hanji/layout/unit.h"
#include "hanji/plan/memory.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/sharding.h"

namespace hanji::plan {

/// Whether a strategy cuts states into shards: zero1, zero2, zero3 and hsdp.
bool cuts_states(Sharding sharding);
/// Whether it makes parameters whole layer by layer: zero3 and hsdp.
bool cuts_parameters(Sharding sharding);

/// How the states of a run are cut among ranks, as parallel/fsdp carries it out.
struct ShardPlan {
  Sharding data = Sharding::kZero1;
  int groups = 1;            ///< Of ranks, that have the same state; the mesh's axis dp.
  int ranks = 1;             ///< Of a group; the mesh's axis fsdp.
  bool spans_hosts = false;  ///< Each rank has its shards for itself, not one state with others.
  int64_t element_bytes = 4;
  std::vector<layout::Unit> units = {};  ///< Parameters whose gradients travel together.

  bool operator==(const ShardPlan&) const = default;
};

/// Cuts the parameters among the ranks of a group: in units of a layer each where parameters are cut,
/// else of at least `unit_bytes`. Copies of ranks of other stages have units of their own.
void cut_model(const ModelFacts& model, int64_t unit_bytes, ShardPlan& plan);

/// Of the parameters, what a rank of a group has.
int64_t shard_bytes(const ShardPlan& plan, int rank);

/// By rank of a group, the partial sums of the gradients' norm.
std::vector<int64_t> norm_counts(const ShardPlan& plan);

/// How a rank's backward passes of one step follow each other.
struct Passes {
  bool accumulates = false;   ///< It adds up several before gradients travel.
  int64_t grain_buffers = 0;  ///< Stable: whole gradients that the fold of grains holds; else 0.
};

/// Bytes of the states on one rank of a group. On one host parameters and the optimizer's moments lie
/// once for the whole group, in the first rank's part of the heap.
///
/// Result  with P bytes of parameters and S of the rank's shard: parameters P and optimizer 2 P on
///         the first rank; on several hosts on every rank parameters P for zero1 and zero2, else
///         S, and optimizer 2 S. Gradient shards S; whole gradients P for zero1, else two units, or
///         of every unit one as large as the largest where passes accumulate; in stable as many
///         times P as the rank's fold holds.
std::vector<MemoryLine> state_lines(const ShardPlan& plan, int rank, const Passes& passes);

/// Of these lines what a group has once and not per rank.
int64_t bytes_per_group(const ShardPlan& plan, const std::vector<MemoryLine>& lines);

}  // namespace hanji::plan
