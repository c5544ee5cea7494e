#include "hanji/plan/communication.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <ranges>
#include <span>

#include "hanji/plan/internal/priced_calls.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/server_plan.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::plan {
namespace {

using internal::Lies;
using internal::PricedCalls;
using schedule::ReduceOp;
using schedule::Routine;

/// Loss, targets and stop flags of a step travel together (train/step.cpp), and what a model's
/// buffers move by.
constexpr int64_t kNumTotals = 4;

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
  PricedCalls calls_;
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
  sum.layer_network_bytes_per_step += times * group.layer_network_bytes_per_step;
  sum.layer_network_seconds += static_cast<double>(times) * group.layer_network_seconds;
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

/// Ranks that sum gradients, and how many such groups there are: all with a part like that of `first`, on
/// hosts like its.
struct DataGroup {
  int first = 0;
  HostLayout hosts = {};
  int64_t times = 1;
};

/// With a term of each gradient on every rank of cp or axial, `terms_add_up`, they are in one group.
std::vector<DataGroup> data_groups(const StepFacts& facts, bool terms_add_up) {
  std::vector<DataGroup> groups;
  const layout::MeshShape& mesh = facts.mesh;
  const auto at = [&](int rank, std::string_view axis) { return mesh.coordinate(rank, axis); };
  for (const int rank : mesh.data_peers(0)) {
    if (terms_add_up && at(rank, "cp") + at(rank, "axial") > 0) continue;
    const HostLayout hosts =
        hosts_of(facts.hosts, terms_add_up ? mesh.gradient_group(rank) : mesh.data_group(rank));
    const auto like = std::ranges::find_if(groups, [&](const DataGroup& one) {
      return at(one.first, "pp") == at(rank, "pp") && at(one.first, "tp") == at(rank, "tp") &&
             one.hosts == hosts;
    });
    like == groups.end() ? groups.push_back({rank, hosts}) : void(++like->times);
  }
  return groups;
}

/// Of the ranks of equal parts of different data coordinates, which sum gradients and losses.
std::vector<GradientCall> add_data_groups(const StepFacts& facts, bool terms_add_up,
                                          Prediction& sum) {
  std::vector<GradientCall> of_first;
  if (facts.shares.size() == 1) return of_first;
  int64_t num_groups = 0;
  for (const auto& [first, hosts, times] : data_groups(facts, terms_add_up)) {
    const int stage = facts.mesh.coordinate(first, "pp"), part = facts.mesh.coordinate(first, "tp");
    StepFacts own = facts;
    own.model =
        (facts.pipeline.ranks.empty() ? facts.model : facts.pipeline.ranks[stage]).part(part);
    if (own.shards) cut_model(own.model, own.bucket_bytes, *own.shards);
    if (!facts.gathers.empty()) own.gathers = {facts.gathers[stage]};
    Prediction group;
    auto calls = StepCalls(own, hosts, group).add();
    add_group(group, first == 0, times, sum);
    if (first == 0) of_first = std::move(calls);
    num_groups += times;
  }
  for (GradientCall& call : of_first) call.network_seconds *= static_cast<double>(num_groups);
  return of_first;
}

/// Of the ranks of one data coordinate: the groups along an axis, by host; of one stage of a pipeline, or of
/// all.
std::vector<HostLayout> groups_along(const StepFacts& facts, std::string_view axis,
                                     const std::vector<int>& peers, bool of_one_stage) {
  std::vector<HostLayout> groups;
  for (const int rank : peers) {
    const bool leads = facts.mesh.coordinate(rank, axis) == 0;
    if (!leads || (of_one_stage && facts.mesh.coordinate(rank, "pp") > 0)) continue;
    groups.push_back(hosts_of(facts.hosts, facts.mesh.members(rank, axis).or_throw()));
  }
  return groups;
}

/// What layers ask of the ranks that cut them, in each micro-batch. Of several stages the calls of one
/// rank are those of the first.
void add_layer_calls(const StepFacts& facts, const DataShare& share, const std::vector<int>& peers,
                     PricedCalls& calls, Prediction& group) {
  const bool is_axial = facts.mesh.degree("axial") > 1;
  const auto cut = groups_along(facts, is_axial ? "axial" : "tp", peers, true);
  const auto context = groups_along(facts, "cp", peers, true);
  for (int64_t i = 0; i < share.num_micro_batches; ++i) {
    const int64_t before = i * facts.micro_batch;
    const int64_t samples = std::min(facts.micro_batch, share.samples.size() - before);
    for (const LayerFacts& layer : facts.model.layers) {
      for (const LayerCall& one : layer.calls) {
        calls.add_layer_call(one, samples, one.is_context ? context : cut);
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
  const auto index = static_cast<int>((data_coordinate * facts.terms + term) % ranks);
  // Not the padding of its shard, which has no gradient.
  int64_t own = 0;
  for (const layout::Piece& piece : layout::pieces(layout::make_unit({0}, sizes, ranks), index)) {
    own += piece.elements.size();
  }
  return own;
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
  PricedCalls calls(facts, hosts, group);
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
  PricedCalls calls(facts, hosts, group);
  if (facts.cut * facts.terms > 1) add_layer_calls(facts, share, peers, calls, group);
  group.layer_bytes_per_step = group.wire_bytes_per_step;
  group.layer_network_bytes_per_step = group.network_bytes_per_step;
  group.layer_network_seconds = group.network_seconds;
  const auto cut = groups_along(facts, "tp", peers, false);
  if (facts.cut > 1 && facts.blocks > 1) {
    calls.add_sums_of_blocks(facts.blocks, DType::kFloat64, cut);
  } else if (facts.cut > 1) {
    calls.add_all_reduces_between_hosts(cut, ReduceOp::kSum, DType::kFloat64,
                                        std::vector<int64_t>(cut.size(), 1), Lies::kPrivate);
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
                       ? add_data_groups(summed_over_terms(facts), true, between)
                       : add_data_groups(facts, false, between);
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
    prediction.layer_network_bytes_per_step += part->layer_network_bytes_per_step;
    prediction.layer_network_seconds += part->layer_network_seconds;
    prediction.network_bytes_per_step += part->network_bytes_per_step;
    prediction.hidden_transfer_seconds += part->hidden_transfer_seconds;
    prediction.collectives_per_step += part->collectives_per_step;
  }
  return gradients;
}

}  // namespace hanji::plan
