#include "hanji/layout/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hanji/layout/shard.h"

namespace hanji::layout {
namespace {

std::vector<int> all_ranks(int num_ranks) {
  std::vector<int> ranks(num_ranks);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

Status check_ranks(const char* what, const std::vector<int>& ranks, int num_ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= num_ranks || (i > 0 && ranks[i] == ranks[i - 1])) {
      return base::invalid_argument(
          fmt::format("{} has rank {} {}; list ranks of 0 to {}, each once", what, ranks[i],
                      i > 0 && ranks[i] == ranks[i - 1] ? "twice" : "outside", num_ranks - 1));
    }
  }
  return {};
}

/// How much each server should hold, in any unit.
std::vector<double> weights_of(const ServerShares& shares) {
  const auto computes = [&](int rank) { return shares.is_worker(rank); };
  const auto both = static_cast<double>(std::ranges::count_if(shares.servers, computes));
  const double k = static_cast<double>(shares.servers.size()) - both;
  const auto n = static_cast<double>(shares.workers.size());
  double computing = 1, serving = 1;
  if (both > 0 && k > 0) {
    computing = both == n ? std::max(0.0, n - k) : 1;
    serving = both == n && k < n ? 2 * (n - 1) : 1;
  }
  std::vector<double> weights;
  for (const int rank : shares.servers) weights.push_back(computes(rank) ? computing : serving);
  return weights;
}

std::vector<Range> cut(int64_t count, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<Range> ranges;
  double until = 0;
  int64_t begin = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    until += weights[i];
    const auto target =
        static_cast<int64_t>(std::llround(static_cast<double>(count) * until / sum));
    const bool last = i + 1 == weights.size();
    const int64_t end = last ? count : std::clamp(round_up(target, kAlignment), begin, count);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

}  // namespace

bool ServerShares::is_worker(int rank) const { return contains(workers, rank); }

int ServerShares::server_index(int rank) const {
  const auto found = std::ranges::find(servers, rank);
  return found == servers.end() ? -1 : static_cast<int>(found - servers.begin());
}

Range ServerShares::range_of(int rank) const {
  const int index = server_index(rank);
  return index < 0 ? Range{} : ranges[index];
}

Result<ServerShares> server_shares(int64_t count, int num_ranks, std::vector<int> servers,
                                   std::vector<int> workers) {
  if (count < 1 || num_ranks < 1) {
    return base::invalid_argument(fmt::format(
        "parameter server: {} elements on {} ranks; both must be at least 1", count, num_ranks));
  }
  std::ranges::sort(servers);
  std::ranges::sort(workers);
  HANJI_RETURN_IF_ERROR(check_ranks("servers", servers, num_ranks));
  HANJI_RETURN_IF_ERROR(check_ranks("workers", workers, num_ranks));
  if (servers.empty()) servers = all_ranks(num_ranks);
  if (workers.empty()) {
    std::ranges::set_difference(all_ranks(num_ranks), servers, std::back_inserter(workers));
    if (workers.empty()) workers = servers;
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (!contains(servers, rank) && !contains(workers, rank)) {
      return base::invalid_argument(fmt::format(
          "parameter server: rank {} of {} is neither worker nor server; give it a part, or take "
          "it out of the group",
          rank, num_ranks));
    }
  }
  ServerShares shares{num_ranks, std::move(workers), std::move(servers), {}, count};
  shares.ranges = cut(count, weights_of(shares));
  return shares;
}

ServerShares cut_at_blocks(ServerShares shares, const FlatLayout& flat) {
  std::vector<int64_t> ends;
  for (const Range& range : shares.ranges) ends.push_back(range.end);
  shares.ranges = cut_near(flat, ends);
  return shares;
}

Unit unit_of(const ServerShares& shares, const FlatLayout& flat) {
  Unit unit{{}, flat, {}};
  unit.parameters.resize(flat.sizes.size());
  std::iota(unit.parameters.begin(), unit.parameters.end(), 0);
  for (int rank = 0; rank < shares.num_ranks; ++rank) unit.shards.push_back(shares.range_of(rank));
  return unit;
}

int64_t ServerTraffic::busiest() const {
  int64_t most = 0;
  for (const Link& link : links) most = std::max({most, link.sent, link.received});
  return most;
}

int64_t ServerTraffic::network() const {
  int64_t sum = 0;
  for (const Link& link : links) sum += link.sent;
  return sum;
}

ServerTraffic server_traffic(const ServerShares& shares, int64_t element_bytes,
                             std::span<const int> parts) {
  ServerTraffic traffic;
  traffic.links.resize(shares.num_ranks);
  for (size_t w = 0; w < shares.workers.size(); ++w) {
    for (size_t s = 0; s < shares.servers.size(); ++s) {
      if (shares.workers[w] == shares.servers[s]) continue;
      const int64_t bytes = shares.ranges[s].size() * element_bytes;
      const int64_t pushed = bytes * (parts.empty() ? 1 : parts[w]);
      auto& worker = traffic.links[shares.workers[w]];
      auto& server = traffic.links[shares.servers[s]];
      worker.sent += pushed;
      server.received += pushed;
      server.sent += bytes;
      worker.received += bytes;
    }
  }
  return traffic;
}

ServerTraffic all_reduce_traffic(int64_t count, int num_ranks, int64_t element_bytes) {
  const int64_t bytes = 2 * count * element_bytes * (num_ranks - 1) / num_ranks;
  return {std::vector<ServerTraffic::Link>(num_ranks, {bytes, bytes})};
}

double server_seconds(int n, int k, double bytes, double bytes_per_second) {
  if (k >= n) return n == 1 && k == 0 ? 0 : bytes / bytes_per_second;
  const double workers = n, extra = k;
  return 2 * workers * (workers - 1) * bytes /
         ((workers * workers + extra * workers - 2 * extra) * bytes_per_second);
}

ServerMemory server_memory(const ServerShares& shares, int rank, int64_t element_bytes,
                           int64_t state_bytes, int num_buffers) {
  const int64_t held = shares.range_of(rank).size();
  const bool computes = shares.is_worker(rank);
  return {.parameters = (computes ? shares.count : held) * element_bytes,
          .gradients = ((computes ? shares.count * num_buffers : 0) + held) * element_bytes,
          .optimizer = held * state_bytes};
}

}  // namespace hanji::layout
