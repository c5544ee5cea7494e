#include "hanji/plan/network.h"

#include <algorithm>
#include <numeric>

#include "hanji/cost/choose_messages.h"
#include "hanji/cost/price.h"
#include "hanji/cost/select.h"
#include "hanji/schedule/tree_exchange.h"

namespace hanji::plan {
namespace {

using schedule::Routine;
using schedule::StepKind;

/// What goes through the stages of a call at once.
constexpr int64_t kChunkBytes = int64_t{4} << 20;
/// A rank's account of its call, which is compared before a byte of it moves.
constexpr int64_t kFrameBytes = 1224;
/// Of the exchange that sums slices: they go out, and the sums come back.
constexpr int kRounds = 2;

/// Bytes of a list's messages that leave each host, and that come to it.
struct Crossing {
  std::vector<int64_t> out, in;
  int64_t most() const {
    return std::max(*std::ranges::max_element(out), *std::ranges::max_element(in));
  }
};

Crossing crossing_of(const schedule::StepList& list, const std::vector<int>& host_of,
                     int64_t element_bytes) {
  const auto num_hosts = static_cast<size_t>(host_of.back()) + 1;
  Crossing crossing{std::vector<int64_t>(num_hosts), std::vector<int64_t>(num_hosts)};
  for (int rank = 0; rank < list.ranks; ++rank) {
    for (const schedule::Step& step : list.per_rank[rank]) {
      if (step.kind != StepKind::kSend || host_of[rank] == host_of[step.peer]) continue;
      crossing.out[host_of[rank]] += step.count * element_bytes;
      crossing.in[host_of[step.peer]] += step.count * element_bytes;
    }
  }
  return crossing;
}

int64_t sent_elements(const schedule::StepList& list) {
  int64_t sum = 0;
  for (const auto& steps : list.per_rank) {
    for (const schedule::Step& step : steps) sum += step.kind == StepKind::kSend ? step.count : 0;
  }
  return sum;
}

std::vector<int> hosts_of_ranks(const HostLayout& hosts) {
  std::vector<int> host_of;
  for (size_t host = 0; host < hosts.ranks.size(); ++host) {
    host_of.insert(host_of.end(), hosts.ranks[host], static_cast<int>(host));
  }
  return host_of;
}

}  // namespace

std::vector<int> spread_ranks(int ranks, int hosts) {
  std::vector<int> spread(hosts, ranks / hosts);
  for (int host = 0; host < ranks % hosts; ++host) ++spread[host];
  return spread;
}

Link choose_link(const CommConfig& comm, const std::optional<cost::Network>& measured) {
  const cost::Network& known = measured ? *measured : cost::kAssumedNetwork;
  Link link{known.latency_seconds, known.bytes_per_second,
            measured ? "measured when the ranks met" : "assumed: nothing was measured"};
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
  for (const int ranks : hosts_.ranks) {
    if (ranks == 1) continue;
    const auto bytes = static_cast<int64_t>(base::size_of(dtype));
    const auto& chosen = chooser_.select(cost::Query{.routine = routine,
                                                     .element_bytes = bytes,
                                                     .ranks = ranks,
                                                     .count = share,
                                                     .dtype = dtype});
    const schedule::StepList& list = in_heap ? *chosen.in_heap : *chosen.if_private;
    cost.seconds = std::max(cost.seconds, cost::price_seconds(list, dtype, chooser_.rates()));
    for (int rank = 0; rank < ranks; ++rank) {
      cost.wire_bytes += schedule::traffic_of(list, rank).wire * bytes;
    }
  }
  return cost;
}

double HostedCalls::comparison_seconds() {
  const auto others = static_cast<double>(hosts_.ranks.size() - 1);
  const double here = local(Routine::kAllGather, DType::kUInt8, kFrameBytes, false).seconds;
  return here + hosts_.link.latency_seconds + others * kFrameBytes / hosts_.link.bytes_per_second;
}

HostedCall HostedCalls::all_reduce(DType dtype, int64_t count, bool in_heap) {
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
    const int64_t sent = kRounds * part * element * (num_hosts - 1);  // by all hosts
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

HostedCall HostedCalls::tree(std::span<const layout::Range> owners, DType dtype, int64_t count) {
  const schedule::StepList list = schedule::tree_exchange(owners, count);
  const auto element = static_cast<int64_t>(base::size_of(dtype));
  const Crossing crossing = crossing_of(list, hosts_of_ranks(hosts_), element);
  HostedCall call{.seconds = comparison_seconds()};
  call.network_seconds = kRounds * hosts_.link.latency_seconds +
                         static_cast<double>(crossing.most()) / hosts_.link.bytes_per_second;
  call.network_bytes = sent_elements(list) * element;
  call.seconds += call.network_seconds;
  return call;
}

}  // namespace hanji::plan
