#include "hanji/plan/communication.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <ranges>
#include <span>

#include "hanji/cost/price.h"
#include "hanji/cost/select.h"
#include "hanji/layout/placement.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/server_plan.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::plan {
namespace {

using schedule::ReduceOp;
using schedule::Routine;

/// Loss, targets and stop flags of a step travel together (train/step.cpp), and what a model's
/// buffers move by.
constexpr int64_t kNumTotals = 4;

int64_t wire_bytes_of_all(const schedule::StepList& list, int64_t bytes) {
  int64_t sum = 0;
  for (int rank = 0; rank < list.ranks; ++rank) sum += schedule::traffic_of(list, rank).wire;
  return sum * bytes;
}

enum class Lies : bool { kPrivate, kInHeap };

/// Adds collectives to a prediction, by the lists that the ranks will run.
class Communication {
 public:
  /// Of groups that lie on `hosts`.
  Communication(const StepFacts& facts, HostLayout hosts, Prediction& prediction)
      : chooser_(facts.rates, facts.algorithms),
        ranks_(static_cast<int>(facts.shares.size())),
        ranks_on_host_(facts.ranks_on_host),
        cut_(facts.cut * facts.terms),
        hosts_(std::move(hosts)),
        hosted_(hosts_, chooser_),
        prediction_(prediction) {}

  /// Of all ranks.
  void add_all_reduce(ReduceOp op, DType dtype, int64_t count, Lies lies) {
    if (!hosts_.several()) return add_all_reduces(ranks_, op, dtype, {count}, lies);
    ++prediction_.collectives_per_step;
    add(hosted_.all_reduce(op, dtype, count, lies == Lies::kInHeap));
  }

  void add_tree(const schedule::GrainTree& tree, DType dtype, int64_t count) {
    ++prediction_.collectives_per_step;
    if (hosts_.several()) return add(hosted_.tree(tree, dtype, count));
    prediction_.transfer_seconds +=
        add_bytes(schedule::tree_all_reduce(tree, count), dtype, Lies::kInHeap);
  }

  /// Of `groups` groups at once, of as many ranks as there are counts.
  void add_in_groups(int groups, Routine routine, DType dtype, const std::vector<int64_t>& counts,
                     Lies lies) {
    ++prediction_.collectives_per_step;
    const auto& chosen =
        chooser_.select({.routine = routine,
                         .element_bytes = static_cast<int64_t>(base::size_of(dtype)),
                         .ranks = static_cast<int>(counts.size()),
                         .count = std::reduce(counts.begin(), counts.end()),
                         .counts = counts,
                         .dtype = dtype});
    prediction_.transfer_seconds += add_bytes(list_of(chosen, lies), dtype, lies, groups);
  }

  /// Of groups at once, each of as many ranks as there are counts, on the hosts that are given: they share
  /// links.
  void add_in_groups(const std::vector<HostLayout>& groups, Routine routine, DType dtype,
                     const std::vector<int64_t>& counts, Lies lies) {
    if (std::ranges::none_of(groups, &HostLayout::several)) {
      return add_in_groups(static_cast<int>(groups.size()), routine, dtype, counts, lies);
    }
    add_over_hosts(groups, [&](const HostLayout& hosts) {
      HostedCalls calls(hosts, chooser_);
      const bool in_heap = lies == Lies::kInHeap;
      return routine == Routine::kAllGather ? calls.all_gather(dtype, counts, in_heap)
                                            : calls.reduce_scatter(dtype, counts, in_heap);
    });
  }

  /// Of a layer among the ranks that cut it.
  void add_layer_call(const LayerCall& call, int64_t samples) {
    std::vector<int64_t> counts;
    for (const Amount& count : call.counts) counts.push_back(count.of(samples));
    const int ranks = call.ranks > 0 ? static_cast<int>(call.ranks) : cut_;
    const int groups = cut_ / ranks;
    if (call.blocks > 1) {
      counts.resize(groups, counts[0]);
      return add_sum_of_blocks(call.blocks, call.dtype, ranks, counts);
    }
    ++prediction_.collectives_per_step;
    cost::Query query{.routine = call.routine,
                      .element_bytes = static_cast<int64_t>(base::size_of(call.dtype)),
                      .ranks = ranks,
                      .count = std::reduce(counts.begin(), counts.end()),
                      .dtype = call.dtype};
    if (counts.size() > 1) query.counts = std::move(counts);
    const bool all_reduce = call.routine == Routine::kAllReduce;
    const auto& chosen =
        all_reduce ? chooser_.select(call.routine, call.op, call.dtype, ranks, query.count)
                   : chooser_.select(query);
    prediction_.transfer_seconds +=
        add_bytes(list_of(chosen, Lies::kPrivate), call.dtype, Lies::kPrivate, groups);
  }

  /// Of as many groups at once as there are counts, each of `ranks` ranks, of the blocks in which each computes
  /// its part.
  void add_sum_of_blocks(int64_t blocks, DType dtype, int ranks,
                         const std::vector<int64_t>& counts) {
    const auto owners = layout::block_owners(static_cast<int>(blocks), ranks);
    const schedule::GrainTree tree = schedule::grain_tree(blocks, owners);
    ++prediction_.collectives_per_step;
    double slowest = 0;
    for (const int64_t count : counts) {
      slowest = std::max(slowest,
                         add_bytes(schedule::tree_all_reduce(tree, count), dtype, Lies::kPrivate));
    }
    prediction_.transfer_seconds += slowest;
  }

  /// Of as many groups at once as there are counts, each of `ranks` ranks.
  void add_all_reduces(int ranks, ReduceOp op, DType dtype, const std::vector<int64_t>& counts,
                       Lies lies) {
    ++prediction_.collectives_per_step;
    double slowest = 0;
    for (const int64_t count : counts) {
      const auto& chosen = chooser_.select(Routine::kAllReduce, op, dtype, ranks, count);
      slowest = std::max(slowest, add_bytes(list_of(chosen, lies), dtype, lies));
    }
    prediction_.transfer_seconds += slowest;
  }

  /// Of `groups` pipelines on the same hosts: what their last stage has computed.
  void add_broadcast(int groups, int ranks, DType dtype, int64_t count) {
    ++prediction_.collectives_per_step;
    if (hosts_.several()) return add(hosted_.broadcast(dtype, count), groups);
    const auto& chosen = chooser_.select(Routine::kBroadcast, ReduceOp::kSum, dtype, ranks, count);
    prediction_.transfer_seconds +=
        add_bytes(list_of(chosen, Lies::kPrivate), dtype, Lies::kPrivate, groups);
  }

  /// Of the same: as many elements from each of their ranks.
  void add_all_gather(int groups, int ranks, DType dtype, int64_t share) {
    if (!hosts_.several()) {
      return add_in_groups(groups, Routine::kAllGather, dtype, std::vector<int64_t>(ranks, share),
                           Lies::kPrivate);
    }
    ++prediction_.collectives_per_step;
    add(hosted_.all_gather(dtype, share), groups);
  }

  /// A part of the flows between the stages of a pipeline. Of those between hosts the bubble has what
  /// stages wait for.
  void add_flows(const StageTraffic& traffic, const std::function<int64_t(int64_t)>& part) {
    const int64_t bytes = part(traffic.bytes), network_bytes = part(traffic.network_bytes);
    prediction_.transfer_seconds +=
        static_cast<double>(bytes) / chooser_.rates().memory_bytes_per_second;
    prediction_.wire_bytes_per_step += bytes;
    prediction_.network_bytes_per_step += network_bytes;
    if (network_bytes == 0) return;
    const double seconds = traffic.link_seconds() * static_cast<double>(network_bytes) /
                           static_cast<double>(traffic.network_bytes);
    prediction_.transfer_seconds += seconds;
    prediction_.network_seconds += seconds;
    prediction_.hidden_transfer_seconds += seconds;
  }

  /// Each end of a message copies half of it; all ranks share the memory's rate.
  void add_messages(const layout::ServerTraffic& traffic) {
    int64_t most = 0;
    for (const auto& link : traffic.links) most = std::max(most, link.sent + link.received);
    const double rate = chooser_.rates().memory_bytes_per_second / ranks_on_host_;
    prediction_.transfer_seconds += static_cast<double>(most) / rate;
    prediction_.wire_bytes_per_step += traffic.network();
  }

  /// Of as many groups at once as there are counts, each on the hosts that are given.
  void add_all_reduces_between_hosts(const std::vector<HostLayout>& groups, ReduceOp op,
                                     DType dtype, const std::vector<int64_t>& counts, Lies lies) {
    if (std::ranges::none_of(groups, &HostLayout::several)) {
      return add_all_reduces(groups[0].ranks[0], op, dtype, counts, lies);
    }
    auto count = counts.begin();
    add_over_hosts(groups, [&](const HostLayout& hosts) {
      return HostedCalls(hosts, chooser_).all_reduce(op, dtype, *count++, lies == Lies::kInHeap);
    });
  }
  /// All of them on the same ones.
  void add_all_reduces_between_hosts(const HostLayout& group, ReduceOp op, DType dtype,
                                     const std::vector<int64_t>& counts, Lies lies) {
    const std::vector<HostLayout> groups(counts.size(), group);
    add_all_reduces_between_hosts(groups, op, dtype, counts, lies);
  }

  /// So far, of all calls.
  double network_seconds() const { return prediction_.network_seconds; }

  void add_barrier(int ranks) {
    ++prediction_.collectives_per_step;
    const auto& chosen =
        chooser_.select(Routine::kBarrier, ReduceOp::kSum, DType::kUInt8, ranks, 0);
    prediction_.transfer_seconds += add_bytes(*chosen.in_heap, DType::kUInt8, Lies::kInHeap);
  }

 private:
  /// A call of each of these groups at once: they share links.
  void add_over_hosts(const std::vector<HostLayout>& groups,
                      const std::function<HostedCall(const HostLayout&)>& call_of) {
    ++prediction_.collectives_per_step;
    HostedCall all;
    for (const HostLayout& group : groups) {
      const HostedCall one = call_of(group);
      all.seconds = std::max(all.seconds, one.seconds - one.network_seconds);
      all.network_seconds += one.network_seconds;
      all.wire_bytes += one.wire_bytes;
      all.network_bytes += one.network_bytes;
    }
    all.seconds += all.network_seconds;
    add(all);
  }

  /// Of `groups` groups at once, which share the link.
  void add(const HostedCall& call, int groups = 1) {
    prediction_.transfer_seconds += call.seconds + (groups - 1) * call.network_seconds;
    prediction_.network_seconds += groups * call.network_seconds;
    prediction_.wire_bytes_per_step += groups * call.wire_bytes;
    prediction_.network_bytes_per_step += groups * call.network_bytes;
  }

  static const schedule::StepList& list_of(const cost::Selection& chosen, Lies lies) {
    return lies == Lies::kInHeap ? *chosen.in_heap : *chosen.if_private;
  }

  /// Adds what a list moves in each of `groups` groups; the result is the seconds of one.
  double add_bytes(const schedule::StepList& list, DType dtype, Lies lies, int groups = 1) {
    const cost::Element element(base::size_of(dtype), dtype, lies == Lies::kInHeap);
    prediction_.wire_bytes_per_step +=
        groups * wire_bytes_of_all(list, static_cast<int64_t>(element.bytes));
    return cost::price_seconds(list, element, chooser_.rates());
  }

  cost::Chooser chooser_;
  const int ranks_;  ///< That sum gradients: one of each data coordinate.
  const int ranks_on_host_;
  const int cut_;  ///< Ranks that cut the model, or its activations.
  const HostLayout hosts_;
  HostedCalls hosted_;
  Prediction& prediction_;
};

/// A step's collectives, of gradients first.
class StepCalls {
 public:
  /// Of ranks that lie on `hosts`.
  StepCalls(const StepFacts& facts, const HostLayout& hosts, Prediction& prediction)
      : facts_(facts), hosts_(hosts), calls_(facts, hosts, prediction) {
    if (facts.kernels.precision == Precision::kFloat64) dtype_ = DType::kFloat64;
    if (facts.shards) find_groups(*facts.shards);
    if (facts.stable_grain == 0) return;
    const auto owners = grain_owners(facts.shares, facts.stable_grain);
    tree_ = schedule::grain_tree(owners.back().end, owners);
  }

  std::vector<GradientCall> add() {
    if (facts_.served) {
      add_server();
    } else {
      facts_.shards ? add_shards(*facts_.shards) : add_replicas();
    }
    if (tree_) add_uses();
    const int64_t totals = kNumTotals + facts_.model.num_statistics;
    tree_ ? calls_.add_tree(*tree_, DType::kFloat64, totals)
          : calls_.add_all_reduce(ReduceOp::kSum, DType::kFloat64, totals, Lies::kPrivate);
    return std::move(gradients_);
  }

 private:
  /// Counts what `add` adds as the gradients of backward up to there: of `finished` among `all`
  /// parameters, whose products take about as long in each block as it has parameters.
  template <class Add>
  void add_gradients(int64_t finished, int64_t all, Add add) {
    const double before = calls_.network_seconds();
    add();
    gradients_.push_back({static_cast<double>(finished) / static_cast<double>(all),
                          calls_.network_seconds() - before});
  }

  int64_t num_tensors() const { return std::ssize(facts_.model.parameters); }

  void add_replicas() {
    const layout::BucketPlan plan =
        gradient_buckets(facts_.model.parameter_sizes(), facts_.bucket_bytes,
                         static_cast<int64_t>(base::size_of(dtype_)));
    for (const layout::Bucket& bucket : plan.buckets) {
      const int64_t count = bucket.end - bucket.begin;
      add_gradients(bucket.end, plan.flat.count, [&] {
        tree_ ? calls_.add_tree(*tree_, dtype_, count)
              : calls_.add_all_reduce(ReduceOp::kSum, dtype_, count, Lies::kInHeap);
      });
    }
    calls_.add_all_reduce(ReduceOp::kMax, DType::kUInt8, num_tensors(), Lies::kPrivate);
  }

  /// Of tied weights, each use after the first.
  void add_uses() {
    const std::vector<int64_t> sizes = facts_.model.tied_sizes();
    if (sizes.empty()) return;
    const auto element_bytes = static_cast<int64_t>(base::size_of(dtype_));
    for (const auto& bucket : gradient_buckets(sizes, facts_.bucket_bytes, element_bytes).buckets) {
      calls_.add_tree(*tree_, dtype_, bucket.end - bucket.begin);
    }
    calls_.add_all_reduce(ReduceOp::kMax, DType::kUInt8, std::ssize(sizes), Lies::kPrivate);
  }

  void add_shards(const ShardPlan& plan) {
    int64_t all = 0, finished = 0;
    for (const layout::Unit& unit : plan.units) all += unit.flat.count;
    for (const layout::Unit& unit : std::views::reverse(plan.units)) {
      finished += unit.flat.count;
      add_gradients(finished, all, [&] { add_unit(plan, unit); });
    }
    const std::vector<int64_t> used_in_groups(plan.groups, num_tensors());
    calls_.add_all_reduces_between_hosts(groups_, ReduceOp::kMax, DType::kUInt8, used_in_groups,
                                         Lies::kPrivate);
    if (plan.groups > 1) {
      const std::vector<int64_t> used_over_groups(plan.ranks, num_tensors());
      calls_.add_all_reduces_between_hosts(over_groups_, ReduceOp::kMax, DType::kUInt8,
                                           used_over_groups, Lies::kPrivate);
    }
    add_norm(plan);
    add_gathers(plan);
    if (plan.spans_hosts) return;
    calls_.add_barrier(plan.ranks);
    calls_.add_barrier(plan.ranks);
  }

  /// Of units, from the shards of a group: of those that were updated where each rank has all of them.
  void add_gathers(const ShardPlan& plan) {
    const bool after_update = plan.spans_hosts && !cuts_parameters(plan.data);
    if (facts_.gathers.empty() && !after_update) return;
    for (size_t i = 0; i < plan.units.size(); ++i) {
      const std::vector<int64_t> counts = layout::shard_counts(plan.units[i]);
      const int64_t times = after_update ? 1 : facts_.gathers[0][i];
      for (int64_t time = 0; time < times; ++time) {
        calls_.add_in_groups(groups_, Routine::kAllGather, dtype_, counts, Lies::kInHeap);
      }
    }
  }

  /// Of the ranks of a group. Of cut sums, and in stable of stages, it is added up by others.
  void add_norm(const ShardPlan& plan) {
    const bool in_stages = !facts_.pipeline.ranks.empty();
    if (facts_.blocks > 1 || (in_stages && tree_)) return;
    if (facts_.cut > 1 || in_stages) {
      return calls_.add_all_reduces_between_hosts(groups_, ReduceOp::kSum, DType::kFloat64,
                                                  std::vector<int64_t>(plan.groups, 1),
                                                  Lies::kPrivate);
    }
    calls_.add_in_groups(groups_, Routine::kAllGather, DType::kFloat64, norm_counts(plan),
                         Lies::kPrivate);
  }

  /// Messages to every server and back, and the norm.
  void add_server() {
    const int ranks = static_cast<int>(facts_.shares.size());
    const ServerPlan plan = serve_model(
        facts_.model.parameter_sizes(), static_cast<int64_t>(base::size_of(dtype_)), ranks,
        tree_ ? grain_owners(facts_.shares, facts_.stable_grain) : std::vector<layout::Range>());
    calls_.add_messages(
        layout::server_traffic(plan.shares, plan.element_bytes, std::span(plan.parts)));
    calls_.add_in_groups(1, Routine::kAllGather, DType::kFloat64,
                         layout::block_counts(layout::unit_of(plan.shares, plan.flat)),
                         Lies::kPrivate);
    if (facts_.blocks > 1) {  // of whose gradients every rank takes the norm
      std::vector<int64_t> counts;
      for (const layout::Range& range : plan.shares.ranges) counts.push_back(range.size());
      calls_.add_in_groups(1, Routine::kAllGather, dtype_, counts, Lies::kPrivate);
    } else if (facts_.cut > 1) {
      calls_.add_all_reduces(ranks, ReduceOp::kSum, DType::kFloat64, {1}, Lies::kPrivate);
    }
  }

  void add_unit(const ShardPlan& plan, const layout::Unit& unit) {
    if (tree_) return calls_.add_tree(*tree_, dtype_, unit.flat.count);
    const std::vector<int64_t> counts = layout::shard_counts(unit);
    calls_.add_in_groups(groups_, Routine::kReduceScatter, dtype_, counts, Lies::kInHeap);
    if (plan.groups == 1) return;
    calls_.add_all_reduces_between_hosts(over_groups_, ReduceOp::kSum, dtype_, counts,
                                         Lies::kInHeap);
  }

  void find_groups(const ShardPlan& plan) {
    for (int group = 0; group < plan.groups; ++group) {
      std::vector<int> members(plan.ranks);
      std::iota(members.begin(), members.end(), group * plan.ranks);
      groups_.push_back(hosts_of(hosts_, members));
    }
    for (int shard = 0; shard < plan.ranks; ++shard) {
      std::vector<int> members;
      for (int group = 0; group < plan.groups; ++group) {
        members.push_back(group * plan.ranks + shard);
      }
      over_groups_.push_back(hosts_of(hosts_, members));
    }
  }

  const StepFacts& facts_;
  const HostLayout hosts_;
  Communication calls_;
  std::vector<HostLayout> groups_;       ///< That shard the state, by host.
  std::vector<HostLayout> over_groups_;  ///< By shard: the ranks that have it, one of each group.
  DType dtype_ = DType::kFloat32;
  std::optional<schedule::GrainTree> tree_;
  std::vector<GradientCall> gradients_;
};

/// Adds what groups do at the same time, sharing the link of their host: the first of them stands for
/// the calls of one rank.
void add_group(const Prediction& group, bool first, int64_t times, Prediction& sum) {
  const double in_memory = std::max(sum.transfer_seconds - sum.network_seconds,
                                    group.transfer_seconds - group.network_seconds);
  sum.network_seconds += static_cast<double>(times) * group.network_seconds;
  sum.transfer_seconds = in_memory + sum.network_seconds;
  sum.wire_bytes_per_step += times * group.wire_bytes_per_step;
  sum.stage_bytes_per_step += times * group.stage_bytes_per_step;
  sum.layer_bytes_per_step += times * group.layer_bytes_per_step;
  sum.network_bytes_per_step += times * group.network_bytes_per_step;
  sum.hidden_transfer_seconds += static_cast<double>(times) * group.hidden_transfer_seconds;
  if (first) sum.collectives_per_step = group.collectives_per_step;
}

/// Every rank of cp or axial has a term of each gradient and loss, as if it were a data coordinate; but in
/// stable, where layers add them up.
StepFacts summed_over_terms(StepFacts facts) {
  std::vector<DataShare> each;
  for (const DataShare& share : facts.shares) each.insert(each.end(), facts.terms, share);
  facts.shares = std::move(each);
  return facts;
}

/// Of the ranks of equal parts of different data coordinates, which sum gradients and losses.
std::vector<GradientCall> add_data_groups(const StepFacts& facts, int64_t peers, Prediction& sum) {
  std::vector<GradientCall> of_first;
  if (facts.shares.size() == 1) return of_first;
  const auto stages = std::max(1, static_cast<int>(facts.pipeline.ranks.size()));
  const std::vector<int> first_ranks = facts.mesh.data_peers(0);
  for (int part = 0; part < facts.cut * stages; ++part) {
    const int peer = part / facts.cut * facts.cut * facts.terms + part % facts.cut;
    const HostLayout hosts = hosts_of(facts.hosts, facts.mesh.data_group(first_ranks[peer]));
    StepFacts own = facts;
    const bool in_stages = !facts.pipeline.ranks.empty();
    own.model =
        (in_stages ? facts.pipeline.ranks[part / facts.cut] : facts.model).part(part % facts.cut);
    if (own.shards) cut_model(own.model, own.bucket_bytes, *own.shards);
    if (!facts.gathers.empty()) own.gathers = {facts.gathers[part / facts.cut]};
    Prediction group;
    auto calls = StepCalls(own, hosts, group).add();
    add_group(group, part == 0, peers / (facts.cut * stages), sum);
    if (part == 0) of_first = std::move(calls);
  }
  for (GradientCall& call : of_first) call.network_seconds *= static_cast<double>(peers);
  return of_first;
}

/// What layers ask of the ranks that cut them, in each micro-batch. Of several stages the calls of one
/// rank are those of the first.
void add_layer_calls(const StepFacts& facts, const DataShare& share, Communication& calls,
                     Prediction& group) {
  for (int64_t i = 0; i < share.num_micro_batches; ++i) {
    const int64_t before = i * facts.micro_batch;
    const int64_t samples = std::min(facts.micro_batch, share.samples.size() - before);
    for (const LayerFacts& layer : facts.model.layers) {
      for (const LayerCall& one : layer.calls) {
        calls.add_layer_call(one, samples);
      }
    }
  }
  if (facts.pipeline.ranks.empty()) return;
  group.collectives_per_step = 0;
  for (const LayerFacts& layer : facts.pipeline.ranks[0].layers) {
    group.collectives_per_step += share.num_micro_batches * std::ssize(layer.calls);
  }
}

/// Of a parameter that several stages have, what ranks of a data coordinate sum: with shards of its
/// sums a rank's own. `term`: of the ranks that have terms of it.
int64_t tied_elements(const StepFacts& facts, int64_t elements, const DataShare& share, int term) {
  if (!facts.shards || facts.stable_grain > 0) return elements;
  const int ranks = facts.shards->ranks;
  const std::vector<int64_t> sizes = {elements};
  const auto data_coordinate = &share - facts.shares.data();
  const auto index = (data_coordinate * facts.terms + term) % ranks;
  return layout::make_unit({0}, sizes, ranks).shards[index].size();
}

/// Of ranks that share out the layers, `peers` with those that cut them: as many groups as cut them, all
/// of them on the same hosts.
void add_stage_calls(const StepFacts& facts, const DataShare& share, const std::vector<int>& peers,
                     Prediction& group) {
  const PipelineFacts& pipeline = facts.pipeline;
  const auto stages = static_cast<int>(pipeline.ranks.size());
  std::vector<int> first_parts;
  const int groups = facts.cut * facts.terms;
  for (int stage = 0; stage < stages; ++stage) first_parts.push_back(peers[stage * groups]);
  const HostLayout hosts = hosts_of(facts.hosts, first_parts);
  Communication calls(facts, hosts, group);
  const bool is_double = facts.kernels.precision == Precision::kFloat64;
  for (const PipelineFacts::Tied& one : pipeline.tied) {
    std::vector<int64_t> elements;
    for (int group = 0; group < groups; ++group) {
      const int part = group % facts.cut, term = group / facts.cut;
      const int64_t all = facts.model.part(part).parameters[one.parameter].elements;
      const int64_t own = tied_elements(facts, all, share, term);
      if (own > 0) elements.push_back(own);
    }
    if (elements.empty()) continue;
    std::vector<int> readers;
    for (const int stage_rank : one.ranks) readers.push_back(first_parts[stage_rank]);
    calls.add_all_reduces_between_hosts(hosts_of(facts.hosts, readers), ReduceOp::kSum,
                                        is_double ? DType::kFloat64 : DType::kFloat32, elements,
                                        Lies::kInHeap);
  }
  calls.add_broadcast(groups, stages, DType::kFloat64, kNumTotals);
  if (const int64_t statistics = facts.model.num_statistics; statistics > 0) {
    calls.add_all_gather(groups, stages, DType::kFloat64, statistics);
  }
  std::vector<int64_t> norm;
  for (int group = 0; group < groups; ++group) {
    norm.push_back(facts.stable_grain > 0 ? pipeline.norm_sums[group % facts.cut] : 1);
  }
  calls.add_all_reduces_between_hosts(hosts, ReduceOp::kSum, DType::kFloat64, norm, Lies::kPrivate);
  // An even share of the bytes, to the last one.
  const int64_t shares = std::ssize(facts.shares);
  const int64_t before = &share - facts.shares.data();
  calls.add_flows(pipeline.traffic, [&](int64_t bytes) {
    return bytes * (before + 1) / shares - bytes * before / shares;
  });
}

/// Of the ranks of one data coordinate: what layers and stages ask for, the norm of parts, and who was
/// told to stop.
Prediction calls_of_peers(const StepFacts& facts, const DataShare& share) {
  Prediction group;
  const auto data_coordinate = &share - facts.shares.data();
  const std::vector<int> peers = facts.mesh.data_peers(facts.mesh.data_group(0)[data_coordinate]);
  const HostLayout hosts = hosts_of(facts.hosts, peers);
  Communication calls(facts, hosts, group);
  if (facts.cut * facts.terms > 1) add_layer_calls(facts, share, calls, group);
  group.layer_bytes_per_step = group.wire_bytes_per_step;
  const size_t stages = facts.terms * std::max<size_t>(1, facts.pipeline.ranks.size());
  if (facts.cut > 1 && facts.blocks > 1) {
    calls.add_sum_of_blocks(facts.blocks, DType::kFloat64, facts.cut,
                            std::vector<int64_t>(stages, 1));
  } else if (facts.cut > 1) {
    calls.add_all_reduces(facts.cut, ReduceOp::kSum, DType::kFloat64,
                          std::vector<int64_t>(stages, 1), Lies::kPrivate);
  }
  const int64_t before = group.wire_bytes_per_step;
  if (!facts.pipeline.ranks.empty()) add_stage_calls(facts, share, peers, group);
  group.stage_bytes_per_step = group.wire_bytes_per_step - before;
  calls.add_all_reduces_between_hosts(hosts, ReduceOp::kMax, DType::kFloat64, {2}, Lies::kPrivate);
  return group;
}

}  // namespace

std::vector<GradientCall> predict_communication(const StepFacts& facts, Prediction& prediction) {
  const auto peers = facts.ranks / std::ssize(facts.shares);
  Prediction in_coordinates, between;
  auto gradients = facts.stable_grain == 0
                       ? add_data_groups(summed_over_terms(facts), peers / facts.terms, between)
                       : add_data_groups(facts, peers, between);
  for (size_t i = 0; peers > 1 && i < facts.shares.size(); ++i) {
    const Prediction one = calls_of_peers(facts, facts.shares[i]);
    add_group(one, i == 0, 1, in_coordinates);
  }
  for (const Prediction* part : {&between, &in_coordinates}) {
    prediction.transfer_seconds += part->transfer_seconds;
    prediction.network_seconds += part->network_seconds;
    prediction.wire_bytes_per_step += part->wire_bytes_per_step;
    prediction.stage_bytes_per_step += part->stage_bytes_per_step;
    prediction.layer_bytes_per_step += part->layer_bytes_per_step;
    prediction.network_bytes_per_step += part->network_bytes_per_step;
    prediction.hidden_transfer_seconds += part->hidden_transfer_seconds;
    prediction.collectives_per_step += part->collectives_per_step;
  }
  return gradients;
}

}  // namespace hanji::plan
