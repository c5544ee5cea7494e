#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "hanji/cost/select.h"
#include "hanji/layout/server.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/network.h"
#include "hanji/plan/predict.h"
#include "hanji/plan/stage_traffic.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::plan::internal {

enum class Lies : bool { kPrivate, kInHeap };

/// Adds collectives to a prediction, by the lists that the ranks will run.
class PricedCalls {
 public:
  /// Of ranks that lie on `hosts`.
  PricedCalls(const StepFacts& facts, HostLayout hosts, Prediction& prediction);

  /// Of all ranks.
  void add_all_reduce(schedule::ReduceOp op, DType dtype, int64_t count, Lies lies);
  void add_tree(const schedule::GrainTree& tree, DType dtype, int64_t count);

  /// Of `groups` groups at once, of as many ranks as there are counts.
  void add_in_groups(int groups, schedule::Routine routine, DType dtype,
                     const std::vector<int64_t>& counts, Lies lies);
  /// Of groups at once, each of as many ranks as there are counts, on the hosts that are given: they share
  /// links.
  void add_in_groups(const std::vector<HostLayout>& groups, schedule::Routine routine, DType dtype,
                     const std::vector<int64_t>& counts, Lies lies);

  /// Of a layer, in each of these groups of the ranks that share it, at once.
  void add_layer_call(const LayerCall& call, int64_t samples,
                      const std::vector<HostLayout>& groups);
  /// Of each of these groups at once, of a value of each, summed over the blocks in which its ranks compute.
  void add_sums_of_blocks(int64_t blocks, DType dtype, const std::vector<HostLayout>& groups);

  /// Of as many groups at once as there are counts, each of `ranks` ranks.
  void add_all_reduces(int ranks, schedule::ReduceOp op, DType dtype,
                       const std::vector<int64_t>& counts, Lies lies);
  /// Of as many groups at once as there are counts, each on the hosts that are given.
  void add_all_reduces_between_hosts(const std::vector<HostLayout>& groups, schedule::ReduceOp op,
                                     DType dtype, const std::vector<int64_t>& counts, Lies lies);
  /// All of them on the same ones.
  void add_all_reduces_between_hosts(const HostLayout& group, schedule::ReduceOp op, DType dtype,
                                     const std::vector<int64_t>& counts, Lies lies);

  /// Of `groups` pipelines on the same hosts: what their last stage has computed.
  void add_broadcast(int groups, int ranks, DType dtype, int64_t count);
  /// Of the same: as many elements from each of their ranks.
  void add_all_gather(int groups, int ranks, DType dtype, int64_t share);
  /// A part of the flows between the stages of a pipeline. Of those between hosts the bubble has what
  /// stages wait for.
  void add_flows(const StageTraffic& traffic, const std::function<int64_t(int64_t)>& part);
  /// Each end of a message copies half of it; all ranks share the memory's rate.
  void add_messages(const layout::ServerTraffic& traffic);
  void add_barrier(int ranks);

  /// So far, of all calls.
  double network_seconds() const { return prediction_.network_seconds; }

 private:
  /// What a call of a layer costs in all of its groups, for the next equal one.
  struct KnownCall {
    LayerCall call;
    int64_t samples;
    HostedCall cost;
  };

  void add_on_one_host(const LayerCall& call, std::vector<int64_t> counts, int groups, int ranks);
  HostedCall call_in_group(const LayerCall& call, const std::vector<int64_t>& counts,
                           const HostLayout& hosts);
  HostedCall all_at_once(const std::vector<HostLayout>& groups,
                         const std::function<HostedCall(const HostLayout&)>& call_of) const;
  void add_over_hosts(const std::vector<HostLayout>& groups,
                      const std::function<HostedCall(const HostLayout&)>& call_of);
  void add(const HostedCall& call, int groups = 1);
  HostedCall in_memory(const schedule::StepList& list, DType dtype, Lies lies) const;
  double add_bytes(const schedule::StepList& list, DType dtype, Lies lies, int groups = 1);

  cost::Chooser chooser_;
  const int ranks_;  ///< That sum gradients: one of each data coordinate.
  const int ranks_on_host_;
  const HostLayout hosts_;
  HostedCalls hosted_;
  Prediction& prediction_;
  std::vector<KnownCall> known_;
};

}  // namespace hanji::plan::internal
