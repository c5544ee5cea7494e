#include "hanji/plan/network.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "hanji/cost/choose_messages.h"
#include "hanji/cost/price.h"
#include "hanji/cost/select.h"
#include "hanji/layout/shard.h"
#include "hanji/plan/host_messages.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::plan {
namespace {

using schedule::Routine;

/// What goes through the stages of a call at once.
constexpr int64_t kChunkBytes = int64_t{4} << 20;
/// A rank's account of its call, which is compared before a byte of it moves.
constexpr int64_t kFrameBytes = 1224;
/// Of the exchange that sums slices: they go out, and the sums come back.
constexpr int kRounds = 2;

/// Ranks of a host, or of all hosts, in a sum over grains: how many, their partial sums, and the
/// elements of the slices that they combine.
struct Members {
  int64_t ranks = 0, partials = 0, elements = 0;
  Members& operator+=(const Members& more) {
    ranks += more.ranks, partials += more.partials, elements += more.elements;
    return *this;
  }
};

std::vector<Members> members_of(const schedule::GrainTree& tree, int64_t count) {
  const int ranks = static_cast<int>(tree.owners.size());
  std::vector<Members> members(tree.owners.size());
  for (int rank = 0; rank < ranks; ++rank) {
    members[rank] = {1, 0, layout::shard_range(count, ranks, rank, 1).size()};
  }
  for (const auto& one : tree.partials) ++members[one.rank].partials;
  return members;
}

/// Elements that `some` send to ranks that are not of them: each partial's slices, and then the own
/// slice to each. `all` contains them.
int64_t elements_sent(const Members& some, const Members& all) {
  return some.partials * (all.elements - some.elements) + some.elements * (all.ranks - some.ranks);
}
/// The same of what they receive.
int64_t elements_received(const Members& some, const Members& all) {
  return (all.partials - some.partials) * some.elements +
         (all.elements - some.elements) * some.ranks;
}

}  // namespace

int HostLayout::host_of(int rank) const {
  int host = 0;
  for (int first = 0; host + 1 < std::ssize(ranks); ++host) {
    first += ranks[host];
    if (rank < first) break;
  }
  return host;
}

HostLayout hosts_of(const HostLayout& all, const std::vector<int>& members) {
  std::map<int, int> members_of_host;
  for (const int rank : members) ++members_of_host[all.host_of(rank)];
  HostLayout hosts{{}, all.link};
  for (const auto& [host, ranks] : members_of_host) hosts.ranks.push_back(ranks);
  return hosts;
}

bool groups_span_hosts(const HostLayout& hosts, int group_ranks) {
  return hosts.several() &&
         std::ranges::any_of(hosts.ranks, [&](int ranks) { return ranks % group_ranks != 0; });
}

HostShares::HostShares(const HostLayout& hosts, const std::vector<int64_t>& counts) {
  auto next = counts.begin();
  for (const int ranks : hosts.ranks) {
    shares_.emplace_back(next, next + ranks);
    next += ranks;
    blocks_.push_back(std::reduce(shares_.back().begin(), shares_.back().end()));
    total_ += blocks_.back();
  }
  rails_ = *std::ranges::min_element(hosts.ranks);
  const auto same = [](const auto& values) {
    return std::ranges::all_of(values, [&](auto value) { return value == values[0]; });
  };
  direct_ = same(hosts.ranks) && same(counts);
}

std::vector<int64_t> HostShares::pieces(int host) const {
  std::vector<int64_t> found(shares_[host].size());
  for (int rail = 0; rail < rails_; ++rail) {
    found[rail] = blocks_[host] / rails_ + (rail < blocks_[host] % rails_ ? 1 : 0);
  }
  return found;
}

std::vector<int64_t> HostShares::carried(int host) const {
  std::vector<int64_t> sums(shares_[host].size());
  for (int from = 0; from < num_hosts(); ++from) {
    const std::vector<int64_t> found = pieces(from);
    for (int rail = 0; rail < rails_; ++rail) sums[rail] += found[rail];
  }
  return sums;
}

int64_t HostShares::busiest() const {
  int64_t most = 0;
  for (const int64_t block : blocks_) {
    most = std::max({most, block * (num_hosts() - 1), total_ - block});
  }
  return most;
}

void Staging::add(const HostLayout& hosts, const HostShares& shares, int rank,
                  int64_t element_bytes) {
  const int host = hosts.host_of(rank);
  const int before = std::reduce(hosts.ranks.begin(), hosts.ranks.begin() + host);
  wide_ = std::max(wide_, shares.total() * element_bytes);
  rail_ = std::max(rail_, shares.carried(host)[rank - before] * element_bytes);
  if (!shares.is_direct()) piece_ = std::max(piece_, shares.block(host) * element_bytes);
}

void Staging::add(const HostMessages& messages, int rank, int64_t element_bytes) {
  const int64_t bytes = messages.staged(rank) * element_bytes;
  wide_ = std::max(wide_, bytes);
  rail_ = std::max(rail_, bytes);
}

std::vector<int> spread_ranks(int ranks, int hosts) {
  std::vector<int> spread(hosts, ranks / hosts);
  for (int host = 0; host < ranks % hosts; ++host) ++spread[host];
  return spread;
}

Link choose_link(const CommConfig& comm, const std::optional<cost::Network>& measured) {
  const cost::Network& known = measured ? *measured : cost::kAssumedNetwork;
  Link link{
      known.latency_seconds, known.bytes_per_second,
      measured ? "measured when the ranks met, by all_reduce" : "assumed: nothing was measured"};
  if (comm.link_latency > 0) link.latency_seconds = comm.link_latency;
  if (comm.link_bytes_per_second > 0) {
    link.bytes_per_second = static_cast<double>(comm.link_bytes_per_second);
  }
  const bool both = comm.link_latency > 0 && comm.link_bytes_per_second > 0;
  const bool none = comm.link_latency <= 0 && comm.link_bytes_per_second <= 0;
  if (both) link.source = "configured";
  if (!both && !none) {
    link.source = (comm.link_latency > 0 ? "latency configured, bandwidth "
                                         : "bandwidth configured, latency ") +
                  link.source;
  }
  return link;
}

HostedCalls::Local HostedCalls::local(Routine routine, DType dtype, int64_t share, bool in_heap) {
  Local cost;
  std::map<int, int64_t> hosts_with;
  for (const int ranks : hosts_.ranks) ++hosts_with[ranks];
  for (const auto& [ranks, num_hosts] : hosts_with) {
    if (ranks == 1) continue;
    const auto bytes = static_cast<int64_t>(base::size_of(dtype));
    const auto& chosen = chooser_.select(cost::Query{.routine = routine,
                                                     .element_bytes = bytes,
                                                     .ranks = ranks,
                                                     .count = share,
                                                     .dtype = dtype});
    add_list(in_heap ? *chosen.in_heap : *chosen.if_private, dtype, in_heap, num_hosts, cost);
  }
  return cost;
}

/// Of as many hosts at once.
void HostedCalls::add_list(const schedule::StepList& list, DType dtype, bool in_heap, int64_t times,
                           Local& cost) {
  const cost::Element element(base::size_of(dtype), dtype, in_heap);
  const auto bytes = static_cast<int64_t>(base::size_of(dtype));
  cost.seconds = std::max(cost.seconds, cost::price_seconds(list, element, chooser_.rates()));
  for (int rank = 0; rank < list.ranks; ++rank) {
    cost.wire_bytes += times * schedule::traffic_of(list, rank).wire * bytes;
  }
}

HostedCalls::Local HostedCalls::local(Routine routine, DType dtype, const CountsOfHost& counts,
                                      bool in_heap) {
  std::map<std::vector<int64_t>, int64_t> hosts_with;
  for (int host = 0; host < std::ssize(hosts_.ranks); ++host) {
    if (hosts_.ranks[host] > 1) ++hosts_with[counts(host)];
  }
  Local cost;
  for (const auto& [shares, num_hosts] : hosts_with) {
    const int64_t all = std::reduce(shares.begin(), shares.end());
    if (all == 0) continue;
    const auto& chosen =
        chooser_.select(cost::Query{.routine = routine,
                                    .element_bytes = static_cast<int64_t>(base::size_of(dtype)),
                                    .ranks = static_cast<int>(shares.size()),
                                    .count = all,
                                    .counts = shares,
                                    .dtype = dtype});
    add_list(in_heap ? *chosen.in_heap : *chosen.if_private, dtype, in_heap, num_hosts, cost);
  }
  return cost;
}

double HostedCalls::comparison_seconds() {
  const auto others = static_cast<double>(hosts_.ranks.size() - 1);
  const double here = local(Routine::kAllGather, DType::kUInt8, kFrameBytes, false).seconds;
  return here + hosts_.link.latency_seconds + others * kFrameBytes / hosts_.link.bytes_per_second;
}

/// Sent by all ranks.
int64_t HostedCalls::elements_reduced(schedule::ReduceOp op, int64_t count) const {
  const auto num_hosts = static_cast<int64_t>(hosts_.ranks.size());
  if (op != schedule::ReduceOp::kMax) return kRounds * count * (num_hosts - 1);
  const int64_t rails = *std::ranges::min_element(hosts_.ranks);
  int64_t sent = 0;
  for (int64_t rail = 0; rail < rails; ++rail) {
    const int64_t slice = count / rails + (rail < count % rails ? 1 : 0);
    sent += num_hosts * (kRounds * (num_hosts - 1) * slice / num_hosts);
  }
  return sent;
}

HostedCall HostedCalls::all_reduce(schedule::ReduceOp op, DType dtype, int64_t count,
                                   bool in_heap) {
  const auto element = static_cast<int64_t>(base::size_of(dtype));
  const auto num_hosts = static_cast<int64_t>(hosts_.ranks.size());
  const int most = *std::ranges::max_element(hosts_.ranks);
  const int64_t chunk = kChunkBytes / element;
  HostedCall call{.seconds = comparison_seconds()};
  double beside = 0;  // what memory moves while chunks are on the wire
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t part = std::min(chunk, count - begin);
    const int64_t share = (part + most - 1) / most;
    const Local out = local(Routine::kReduceScatter, dtype, share, in_heap);
    const Local in = local(Routine::kAllGather, dtype, share, in_heap);
    const int64_t sent = elements_reduced(op, part) * element;  // by all hosts
    call.network_seconds +=
        kRounds * hosts_.link.latency_seconds +
        static_cast<double>(sent) / static_cast<double>(num_hosts) / hosts_.link.bytes_per_second;
    call.wire_bytes += out.wire_bytes + in.wire_bytes;
    call.network_bytes += sent;
    // The first chunk is summed before anything is on the wire, the last put together after it.
    (begin == 0 ? call.seconds : beside) += out.seconds;
    (begin + chunk >= count ? call.seconds : beside) += in.seconds;
  }
  call.seconds += std::max(call.network_seconds, beside);
  return call;
}

/// What goes between hosts in one piece.
HostedCall HostedCalls::small_call(int64_t sent, double sent_by_host) const {
  HostedCall call;
  call.network_seconds = hosts_.link.latency_seconds + sent_by_host / hosts_.link.bytes_per_second;
  call.network_bytes = sent;
  call.seconds = call.network_seconds;
  return call;
}

HostedCall HostedCalls::broadcast(DType dtype, int64_t count) {
  const auto bytes = count * static_cast<int64_t>(base::size_of(dtype));
  HostedCall call = small_call(bytes, static_cast<double>(bytes));
  const Local here = local(Routine::kBroadcast, dtype, count, false);
  call.seconds += comparison_seconds() + here.seconds;
  call.wire_bytes = here.wire_bytes;
  return call;
}

HostedCall HostedCalls::all_gather(DType dtype, int64_t share) {
  const auto others = static_cast<int64_t>(hosts_.ranks.size()) - 1;
  const int64_t bytes = share * static_cast<int64_t>(base::size_of(dtype));
  const int64_t ranks = std::reduce(hosts_.ranks.begin(), hosts_.ranks.end());
  const int64_t most = *std::ranges::max_element(hosts_.ranks);
  HostedCall call = small_call(ranks * bytes * others, static_cast<double>(most * bytes * others));
  const Local here = local(Routine::kAllGather, dtype, ranks * share / most, false);
  call.seconds += comparison_seconds() + here.seconds;
  call.wire_bytes = here.wire_bytes;
  return call;
}

/// Of each host's block with all others, after the comparison.
HostedCall HostedCalls::exchange_of(const HostShares& shares, DType dtype) {
  const auto element = static_cast<int64_t>(base::size_of(dtype));
  HostedCall call = small_call(shares.total() * (shares.num_hosts() - 1) * element,
                               static_cast<double>(shares.busiest() * element));
  // What the rails carry is put in the order of ranks, or the other way round.
  call.seconds += comparison_seconds() + static_cast<double>(shares.total() * element) /
                                             chooser_.rates().memory_bytes_per_second;
  return call;
}

HostedCall HostedCalls::all_gather(DType dtype, const std::vector<int64_t>& counts, bool in_heap) {
  const HostShares shares(hosts_, counts);
  HostedCall call = exchange_of(shares, dtype);
  const auto add = [&](const CountsOfHost& of_host) {
    const Local here = local(Routine::kAllGather, dtype, of_host, in_heap);
    call.seconds += here.seconds;
    call.wire_bytes += here.wire_bytes;
  };
  if (!shares.is_direct()) add([&](int host) { return shares.shares(host); });
  add([&](int host) { return shares.carried(host); });
  return call;
}

HostedCall HostedCalls::reduce_scatter(DType dtype, const std::vector<int64_t>& counts,
                                       bool in_heap) {
  const HostShares shares(hosts_, counts);
  HostedCall call = exchange_of(shares, dtype);
  const auto add = [&](Routine routine, const CountsOfHost& of_host) {
    const Local here = local(routine, dtype, of_host, in_heap);
    call.seconds += here.seconds;
    call.wire_bytes += here.wire_bytes;
  };
  add(Routine::kReduceScatter, [&](int host) { return shares.carried(host); });
  if (!shares.is_direct()) {
    add(Routine::kAllGather, [&](int host) { return shares.pieces(host); });
  }
  return call;
}

HostedCall HostedCalls::all_to_all(DType dtype, const std::vector<int64_t>& counts) {
  /// In memory: put in the order of rails, given to these, put in the order of hosts, and of senders.
  constexpr double kCopies = 4;
  const HostMessages messages(hosts_, counts);
  const auto element = static_cast<int64_t>(base::size_of(dtype));
  HostedCall call = small_call(messages.between_hosts() * element,
                               static_cast<double>(messages.busiest() * element));
  call.wire_bytes = messages.within_hosts() * element;
  const auto bytes = static_cast<double>(messages.total() * element);
  call.seconds += comparison_seconds() + kCopies * bytes / chooser_.rates().memory_bytes_per_second;
  return call;
}

HostedCall HostedCalls::tree(const schedule::GrainTree& tree, DType dtype, int64_t count) {
  const std::vector<Members> members = members_of(tree, count);
  const auto element = static_cast<int64_t>(base::size_of(dtype));
  Members all;
  for (const Members& rank : members) all += rank;
  int64_t sent = 0, most = 0;  // by all ranks; over the busiest host's link, one way
  for (const Members& rank : members) sent += elements_sent(rank, all);
  auto rank = members.begin();
  for (const int ranks : hosts_.ranks) {
    Members host;
    for (int i = 0; i < ranks; ++i) host += *rank++;
    most = std::max({most, elements_sent(host, all), elements_received(host, all)});
  }
  HostedCall call{.seconds = comparison_seconds()};
  call.network_seconds = kRounds * hosts_.link.latency_seconds +
                         static_cast<double>(most * element) / hosts_.link.bytes_per_second;
  call.network_bytes = sent * element;
  call.seconds += call.network_seconds;
  return call;
}

}  // namespace hanji::plan
