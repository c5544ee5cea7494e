#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/layout/flat.h"
#include "hanji/layout/range.h"
#include "hanji/layout/unit.h"

namespace hanji::layout {

/// Who computes, who holds the parameters, and which range of the flat buffer each server holds.
struct ServerShares {
  int num_ranks = 0;
  std::vector<int> workers;   ///< Ranks, ascending.
  std::vector<int> servers;   ///< Ranks, ascending; a rank may be both.
  std::vector<Range> ranges;  ///< Of servers[i]: contiguous, in order, covering [0, count).
  int64_t count = 0;

  bool is_worker(int rank) const;
  /// Index into servers, or -1.
  int server_index(int rank) const;
  /// The range that a rank holds as a server; empty if it is none.
  Range range_of(int rank) const;
  bool operator==(const ServerShares&) const = default;
};

/// Shares [0, count) out so that no link carries more than another where that can be had.
///
/// Result  with n workers of which some are servers, and k servers that do not compute: each of the
///         k holds 2(n-1)/(n^2+kn-2k) of the elements and each of the n (n-k)/(n^2+kn-2k), as long
///         as all workers are servers and k < n; otherwise servers of a kind hold equal shares,
///         and those that compute none if k >= n. Ranges begin at multiples of 64.
/// Order   no servers: every rank is one. No workers: the ranks that are no servers, or all.
/// Errors  invalid_argument for ranks outside [0, num_ranks), listed twice, that are neither
///         worker nor server, and for a count or a number of ranks below 1.
Result<ServerShares> server_shares(int64_t count, int num_ranks, std::vector<int> servers = {},
                                   std::vector<int> workers = {});

/// The same shares with every range moved to end where a shard may (kShardBlock), so that the sums
/// that make up a gradient's norm lie on one server each.
ServerShares cut_at_blocks(ServerShares shares, const FlatLayout& flat);

/// All parameters as one unit, of which every rank's shard is the range that it serves.
Unit unit_of(const ServerShares& shares, const FlatLayout& flat);

/// The least that one step of a synchronous server moves: gradients there, weights back.
struct ServerTraffic {
  struct Link {
    int64_t sent = 0;
    int64_t received = 0;
    bool operator==(const Link&) const = default;
  };
  std::vector<Link> links;  ///< Bytes of each rank, with the others.

  /// The most bytes that one rank sends or receives: what bounds the time where links are alike and
  /// carry both directions at once.
  int64_t busiest() const;
  int64_t network() const;  ///< All bytes, each counted once.
};

/// `parts[i]`: how many buffers workers[i] pushes (its maximal subtrees of grains); empty: one each.
ServerTraffic server_traffic(const ServerShares& shares, int64_t element_bytes,
                             std::span<const int> parts = {});

/// The same of an all-reduce that is optimal in bytes: 2(n-1)/n of the buffer per rank.
ServerTraffic all_reduce_traffic(int64_t count, int num_ranks, int64_t element_bytes);

/// Seconds of a step's exchange with n workers that are all servers and k more that only serve:
/// 2n(n-1)S / ((n^2 + kn - 2k)B) for k <= n, S/B beyond; k = 0 is an all-reduce, k = n is S/B.
///
/// Order   n >= 1, k >= 0; one link of B bytes per second in each direction per rank.
/// Source  Jiang et al., BytePS, OSDI 2020, section 4.1.
double server_seconds(int n, int k, double bytes, double bytes_per_second);

/// Bytes of model states that a rank of the server holds.
struct ServerMemory {
  int64_t parameters = 0;  ///< All of them on a worker, its range on a rank that only serves.
  int64_t gradients = 0;   ///< The worker's buffers, and the sum over a server's range.
  int64_t optimizer = 0;   ///< Of a server's range.

  int64_t total() const { return parameters + gradients + optimizer; }
  bool operator==(const ServerMemory&) const = default;
};

/// Of `rank`, whose optimizer keeps `state_bytes` per element: AdamW in float32 8, SGD with momentum
/// and Lion 4, plain SGD 0. `num_buffers`: gradient buffers of a worker. Staging is not counted.
ServerMemory server_memory(const ServerShares& shares, int rank, int64_t element_bytes,
                           int64_t state_bytes, int num_buffers = 1);

}  // namespace hanji::layout
