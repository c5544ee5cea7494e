#include "hanji/plan/internal/priced_calls.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "hanji/cost/price.h"
#include "hanji/layout/placement.h"

namespace hanji::plan::internal {
namespace {

using schedule::ReduceOp;
using schedule::Routine;

int64_t wire_bytes_of_all(const schedule::StepList& list, int64_t bytes) {
  int64_t sum = 0;
  for (int rank = 0; rank < list.ranks; ++rank) sum += schedule::traffic_of(list, rank).wire;
  return sum * bytes;
}

const schedule::StepList& list_of(const cost::Selection& chosen, Lies lies) {
  return lies == Lies::kInHeap ? *chosen.in_heap : *chosen.if_private;
}

int num_ranks(const HostLayout& hosts) {
  return std::reduce(hosts.ranks.begin(), hosts.ranks.end());
}

std::vector<int64_t> counts_of(const LayerCall& call, int64_t samples) {
  std::vector<int64_t> counts;
  for (const Amount& count : call.counts) counts.push_back(count.of(samples));
  return counts;
}

schedule::GrainTree tree_of_blocks(int64_t blocks, int ranks) {
  return schedule::grain_tree(blocks, layout::block_owners(static_cast<int>(blocks), ranks));
}

/// The list of such a call of a layer of ranks that share memory.
const cost::Selection& select(cost::Chooser& chooser, const LayerCall& call,
                              const std::vector<int64_t>& counts, int ranks) {
  cost::Query query{.routine = call.routine,
                    .element_bytes = static_cast<int64_t>(base::size_of(call.dtype)),
                    .ranks = ranks,
                    .count = std::reduce(counts.begin(), counts.end()),
                    .dtype = call.dtype};
  if (counts.size() > 1) query.counts = counts;
  return call.routine == Routine::kAllReduce
             ? chooser.select(call.routine, call.op, call.dtype, ranks, query.count)
             : chooser.select(query);
}

}  // namespace

PricedCalls::PricedCalls(const StepFacts& facts, HostLayout hosts, Prediction& prediction)
    : chooser_(facts.rates, facts.algorithms),
      ranks_(static_cast<int>(facts.shares.size())),
      ranks_on_host_(facts.ranks_on_host),
      hosts_(std::move(hosts)),
      hosted_(hosts_, chooser_),
      prediction_(prediction) {}

void PricedCalls::add_all_reduce(ReduceOp op, DType dtype, int64_t count, Lies lies) {
  if (!hosts_.several()) return add_all_reduces(ranks_, op, dtype, {count}, lies);
  ++prediction_.collectives_per_step;
  add(hosted_.all_reduce(op, dtype, count, lies == Lies::kInHeap));
}

void PricedCalls::add_tree(const schedule::GrainTree& tree, DType dtype, int64_t count) {
  ++prediction_.collectives_per_step;
  if (hosts_.several()) return add(hosted_.tree(tree, dtype, count));
  prediction_.transfer_seconds +=
      add_bytes(schedule::tree_all_reduce(tree, count), dtype, Lies::kInHeap);
}

void PricedCalls::add_in_groups(int groups, Routine routine, DType dtype,
                                const std::vector<int64_t>& counts, Lies lies) {
  ++prediction_.collectives_per_step;
  const auto& chosen = chooser_.select({.routine = routine,
                                        .element_bytes = static_cast<int64_t>(base::size_of(dtype)),
                                        .ranks = static_cast<int>(counts.size()),
                                        .count = std::reduce(counts.begin(), counts.end()),
                                        .counts = counts,
                                        .dtype = dtype});
  prediction_.transfer_seconds += add_bytes(list_of(chosen, lies), dtype, lies, groups);
}

void PricedCalls::add_in_groups(const std::vector<HostLayout>& groups, Routine routine, DType dtype,
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

void PricedCalls::add_layer_call(const LayerCall& call, int64_t samples,
                                 const std::vector<HostLayout>& groups) {
  std::vector<int64_t> counts = counts_of(call, samples);
  if (std::ranges::none_of(groups, &HostLayout::several)) {
    return add_on_one_host(call, std::move(counts), static_cast<int>(groups.size()),
                           num_ranks(groups[0]));
  }
  ++prediction_.collectives_per_step;
  const auto known = std::ranges::find_if(
      known_, [&](const KnownCall& one) { return one.samples == samples && one.call == call; });
  if (known != known_.end()) return add(known->cost);
  size_t group = 0;
  const bool by_group = call.blocks > 1 && counts.size() > 1;
  const HostedCall cost = all_at_once(groups, [&](const HostLayout& hosts) {
    return call_in_group(call, by_group ? std::vector{counts.at(group++)} : counts, hosts);
  });
  known_.push_back({call, samples, cost});
  add(cost);
}

/// In `groups` groups of `ranks` ranks, none of which lies on several hosts.
void PricedCalls::add_on_one_host(const LayerCall& call, std::vector<int64_t> counts, int groups,
                                  int ranks) {
  ++prediction_.collectives_per_step;
  if (call.blocks == 1) {
    prediction_.transfer_seconds +=
        add_bytes(list_of(select(chooser_, call, counts, ranks), Lies::kPrivate), call.dtype,
                  Lies::kPrivate, groups);
    return;
  }
  counts.resize(groups, counts[0]);
  const schedule::GrainTree tree = tree_of_blocks(call.blocks, ranks);
  double slowest = 0;
  for (const int64_t count : counts) {
    slowest = std::max(
        slowest, add_bytes(schedule::tree_all_reduce(tree, count), call.dtype, Lies::kPrivate));
  }
  prediction_.transfer_seconds += slowest;
}

HostedCall PricedCalls::call_in_group(const LayerCall& call, const std::vector<int64_t>& counts,
                                      const HostLayout& hosts) {
  const int ranks = num_ranks(hosts);
  std::optional<schedule::GrainTree> tree;
  if (call.blocks > 1) tree = tree_of_blocks(call.blocks, ranks);
  if (!hosts.several()) {
    const auto list = tree ? schedule::tree_all_reduce(*tree, counts[0])
                           : list_of(select(chooser_, call, counts, ranks), Lies::kPrivate);
    return in_memory(list, call.dtype, Lies::kPrivate);
  }
  HostedCalls calls(hosts, chooser_);
  if (tree) return calls.tree(*tree, call.dtype, counts[0]);
  const auto of_each = [&] {
    return counts.size() == 1 ? std::vector<int64_t>(ranks, counts[0]) : counts;
  };
  constexpr bool kInHeap = false;
  switch (call.routine) {
    case Routine::kAllGather: return calls.all_gather(call.dtype, of_each(), kInHeap);
    case Routine::kReduceScatter: return calls.reduce_scatter(call.dtype, of_each(), kInHeap);
    case Routine::kAllToAll: return calls.all_to_all(call.dtype, counts);
    default: return calls.all_reduce(call.op, call.dtype, counts[0], kInHeap);
  }
}

void PricedCalls::add_sums_of_blocks(int64_t blocks, DType dtype,
                                     const std::vector<HostLayout>& groups) {
  add_layer_call(
      {.routine = Routine::kTreeReduce, .dtype = dtype, .counts = {{.fixed = 1}}, .blocks = blocks},
      1, groups);
}

void PricedCalls::add_all_reduces(int ranks, ReduceOp op, DType dtype,
                                  const std::vector<int64_t>& counts, Lies lies) {
  ++prediction_.collectives_per_step;
  double slowest = 0;
  for (const int64_t count : counts) {
    const auto& chosen = chooser_.select(Routine::kAllReduce, op, dtype, ranks, count);
    slowest = std::max(slowest, add_bytes(list_of(chosen, lies), dtype, lies));
  }
  prediction_.transfer_seconds += slowest;
}

void PricedCalls::add_all_reduces_between_hosts(const std::vector<HostLayout>& groups, ReduceOp op,
                                                DType dtype, const std::vector<int64_t>& counts,
                                                Lies lies) {
  if (std::ranges::none_of(groups, &HostLayout::several)) {
    return add_all_reduces(groups[0].ranks[0], op, dtype, counts, lies);
  }
  auto count = counts.begin();
  add_over_hosts(groups, [&](const HostLayout& hosts) {
    return HostedCalls(hosts, chooser_).all_reduce(op, dtype, *count++, lies == Lies::kInHeap);
  });
}

void PricedCalls::add_all_reduces_between_hosts(const HostLayout& group, ReduceOp op, DType dtype,
                                                const std::vector<int64_t>& counts, Lies lies) {
  const std::vector<HostLayout> groups(counts.size(), group);
  add_all_reduces_between_hosts(groups, op, dtype, counts, lies);
}

void PricedCalls::add_broadcast(int groups, int ranks, DType dtype, int64_t count) {
  ++prediction_.collectives_per_step;
  if (hosts_.several()) return add(hosted_.broadcast(dtype, count), groups);
  const auto& chosen = chooser_.select(Routine::kBroadcast, ReduceOp::kSum, dtype, ranks, count);
  prediction_.transfer_seconds +=
      add_bytes(list_of(chosen, Lies::kPrivate), dtype, Lies::kPrivate, groups);
}

void PricedCalls::add_all_gather(int groups, int ranks, DType dtype, int64_t share) {
  if (!hosts_.several()) {
    return add_in_groups(groups, Routine::kAllGather, dtype, std::vector<int64_t>(ranks, share),
                         Lies::kPrivate);
  }
  ++prediction_.collectives_per_step;
  add(hosted_.all_gather(dtype, share), groups);
}

void PricedCalls::add_flows(const StageTraffic& traffic,
                            const std::function<int64_t(int64_t)>& part) {
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

void PricedCalls::add_messages(const layout::ServerTraffic& traffic) {
  int64_t most = 0;
  for (const auto& link : traffic.links) most = std::max(most, link.sent + link.received);
  const double rate = chooser_.rates().memory_bytes_per_second / ranks_on_host_;
  prediction_.transfer_seconds += static_cast<double>(most) / rate;
  prediction_.wire_bytes_per_step += traffic.network();
}

void PricedCalls::add_barrier(int ranks) {
  ++prediction_.collectives_per_step;
  const auto& chosen = chooser_.select(Routine::kBarrier, ReduceOp::kSum, DType::kUInt8, ranks, 0);
  prediction_.transfer_seconds += add_bytes(*chosen.in_heap, DType::kUInt8, Lies::kInHeap);
}

/// A call of each of these groups at once: they share links.
HostedCall PricedCalls::all_at_once(
    const std::vector<HostLayout>& groups,
    const std::function<HostedCall(const HostLayout&)>& call_of) const {
  HostedCall all;
  for (const HostLayout& group : groups) {
    const HostedCall one = call_of(group);
    all.seconds = std::max(all.seconds, one.seconds - one.network_seconds);
    all.network_seconds += one.network_seconds;
    all.wire_bytes += one.wire_bytes;
    all.network_bytes += one.network_bytes;
  }
  all.seconds += all.network_seconds;
  return all;
}

void PricedCalls::add_over_hosts(const std::vector<HostLayout>& groups,
                                 const std::function<HostedCall(const HostLayout&)>& call_of) {
  ++prediction_.collectives_per_step;
  add(all_at_once(groups, call_of));
}

/// Of `groups` groups at once, which share the link.
void PricedCalls::add(const HostedCall& call, int groups) {
  prediction_.transfer_seconds += call.seconds + (groups - 1) * call.network_seconds;
  prediction_.network_seconds += groups * call.network_seconds;
  prediction_.wire_bytes_per_step += groups * call.wire_bytes;
  prediction_.network_bytes_per_step += groups * call.network_bytes;
}

HostedCall PricedCalls::in_memory(const schedule::StepList& list, DType dtype, Lies lies) const {
  const cost::Element element(base::size_of(dtype), dtype, lies == Lies::kInHeap);
  return {.seconds = cost::price_seconds(list, element, chooser_.rates()),
          .wire_bytes = wire_bytes_of_all(list, static_cast<int64_t>(element.bytes))};
}

/// Adds what a list moves in each of `groups` groups; the result is the seconds of one.
double PricedCalls::add_bytes(const schedule::StepList& list, DType dtype, Lies lies, int groups) {
  const HostedCall one = in_memory(list, dtype, lies);
  prediction_.wire_bytes_per_step += groups * one.wire_bytes;
  return one.seconds;
}

}  // namespace hanji::plan::internal
