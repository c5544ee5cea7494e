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

/// What joins hosts: the figures, and where they come from.
struct Link {
  double latency_seconds = 0;
  double bytes_per_second = 0;  ///< Of one host, each way.
  std::string source;           ///< For people: "measured when the ranks met".
  bool operator==(const Link&) const = default;
};

/// Where ranks run, numbered host by host.
struct HostLayout {
  std::vector<int> ranks;  ///< Of each host; one host or none: there is no network.
  Link link;
  bool several() const { return ranks.size() > 1; }
  bool operator==(const HostLayout&) const = default;
};

/// `ranks` ranks on `hosts` hosts, as even as they go.
std::vector<int> spread_ranks(int ranks, int hosts);

/// The figures of comm.link_*, where they are set; else those measured, else those of a network of
/// which nothing is known.
Link choose_link(const CommConfig& comm, const std::optional<cost::Network>& measured);

/// What one call over several hosts costs.
struct HostedCall {
  double seconds = 0;
  double network_seconds = 0;  ///< On the wire; what memory moves meanwhile hides in it.
  int64_t wire_bytes = 0;      ///< Ranks of one host read from each other; of all hosts.
  int64_t network_bytes = 0;   ///< Sent by messages; of all ranks.
};

/// Prices calls as comm/hierarchical carries them out: the ranks compare their calls; then of each
/// chunk a host's ranks sum their slices, the rails exchange and sum them between hosts, and the
/// heap puts them together, while the next chunks are on the wire. All rails of a host share its
/// link.
///
/// Result  all_reduce of N bytes on h hosts: 2N(h-1)/h of a host's link, and 2 latencies per chunk.
///         A tree over grains: what its messages take of the busiest host's link.
class HostedCalls {
 public:
  /// Both must outlive it.
  HostedCalls(const HostLayout& hosts, cost::Chooser& chooser) : hosts_(hosts), chooser_(chooser) {}

  HostedCall all_reduce(DType dtype, int64_t count, bool in_heap);
  HostedCall tree(const schedule::GrainTree& tree, DType dtype, int64_t count);

 private:
  struct Local {
    double seconds = 0;
    int64_t wire_bytes = 0;  // of all hosts
  };
  Local local(schedule::Routine routine, DType dtype, int64_t share, bool in_heap);
  double comparison_seconds();

  const HostLayout& hosts_;
  cost::Chooser& chooser_;
};

}  // namespace hanji::plan
