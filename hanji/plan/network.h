#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/cost/simulate.h"
#include "hanji/plan/config.h"
#include "hanji/schedule/operation.h"

namespace hanji::cost {
class Chooser;
}
namespace hanji::schedule {
struct GrainTree;
}

namespace hanji::plan {

/// The network between hosts: figures and their source.
struct Link {
  double latency_seconds = 0;
  double bytes_per_second = 0;  ///< Of one host, each way.
  std::string source;           ///< For output: "measured when the ranks met".
  bool operator==(const Link&) const = default;
};

/// The hosts of the ranks, which are numbered host by host.
struct HostLayout {
  std::vector<int> ranks;  ///< Of each host; for at most one host there is no network.
  Link link;
  bool several() const { return ranks.size() > 1; }
  /// 0 without hosts.
  int host_of(int rank) const;
  bool operator==(const HostLayout&) const = default;
};

/// How `members`, ranks of `all`, lie on its hosts.
HostLayout hosts_of(const HostLayout& all, const std::vector<int>& members);

/// Distributes `ranks` ranks over `hosts` hosts as evenly as possible.
std::vector<int> spread_ranks(int ranks, int hosts);

/// The figures of comm.link_* if set, else the measured ones, else those of an assumed network.
Link choose_link(const CommConfig& comm, const std::optional<cost::Network>& measured);

/// The cost of one call over several hosts.
struct HostedCall {
  double seconds = 0;
  double network_seconds = 0;  ///< On the network; hides the copies in memory at the same time.
  int64_t wire_bytes = 0;      ///< Ranks of one host read from each other; of all hosts.
  int64_t network_bytes = 0;   ///< Sent by messages; of all ranks.
};

/// Computes the cost of calls as comm/hierarchical executes them: the ranks compare their calls; then,
/// for each chunk, the ranks of a host sum their slices, the rails sum them between hosts, and the
/// slices are all-gathered in the heap, while the next chunks are sent. All rails of a host share its
/// link.
///
/// Result  all_reduce of N bytes on h hosts: 2N(h-1)/h of a host's link, and 2 latencies per chunk.
///         A tree over grains: the time of its messages on the busiest host's link. Maxima and
///         broadcasts are the engine's own: of their bytes what it has to send at least.
class HostedCalls {
 public:
  /// Both must outlive it.
  HostedCalls(const HostLayout& hosts, cost::Chooser& chooser) : hosts_(hosts), chooser_(chooser) {}

  HostedCall all_reduce(schedule::ReduceOp op, DType dtype, int64_t count, bool in_heap);
  HostedCall broadcast(DType dtype, int64_t count);
  /// Of as many elements from each rank.
  HostedCall all_gather(DType dtype, int64_t share);
  HostedCall tree(const schedule::GrainTree& tree, DType dtype, int64_t count);

 private:
  struct Local {
    double seconds = 0;
    int64_t wire_bytes = 0;  // of all hosts
  };
  Local local(schedule::Routine routine, DType dtype, int64_t share, bool in_heap);
  double comparison_seconds();
  int64_t elements_reduced(schedule::ReduceOp op, int64_t count) const;
  HostedCall small_call(int64_t sent, double sent_by_host) const;

  const HostLayout& hosts_;
  cost::Chooser& chooser_;
};

}  // namespace hanji::plan
