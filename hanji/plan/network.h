#pragma once

#include <cstdint>
#include <functional>
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
struct StepList;
}  // namespace hanji::schedule

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

/// Whether any of the groups of so many ranks next to each other lies on several hosts.
bool groups_span_hosts(const HostLayout& hosts, int group_ranks);

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

/// How shares, one of each rank, travel between hosts as comm/hierarchical moves them: those of a host's
/// ranks are its block, of which each rail carries an equal piece.
class HostShares {
 public:
  /// `counts`: elements by rank.
  HostShares(const HostLayout& hosts, const std::vector<int64_t>& counts);

  int64_t total() const { return total_; }
  /// Of a host's block.
  int64_t block(int host) const { return blocks_[host]; }
  /// By rank of a host: its share, the piece of the block that it carries, and all that it carries; 0 for
  /// ranks beyond the rails.
  const std::vector<int64_t>& shares(int host) const { return shares_[host]; }
  std::vector<int64_t> pieces(int host) const;
  std::vector<int64_t> carried(int host) const;
  /// Whether each rank's share is the piece that it carries.
  bool is_direct() const { return direct_; }
  int num_hosts() const { return static_cast<int>(blocks_.size()); }
  /// Elements that the busiest host sends, or receives, where each gives its block to all others.
  int64_t busiest() const;

 private:
  std::vector<std::vector<int64_t>> shares_;
  std::vector<int64_t> blocks_;
  int64_t total_ = 0;
  int rails_ = 1;
  bool direct_ = true;
};

class HostMessages;

/// What one rank of several hosts keeps between calls, to put shares in order.
class Staging {
 public:
  /// Room for such a call of the rank `rank` of `hosts`.
  void add(const HostLayout& hosts, const HostShares& shares, int rank, int64_t element_bytes);
  void add(const HostMessages& messages, int rank, int64_t element_bytes);
  int64_t bytes() const { return wide_ + rail_ + piece_; }

 private:
  int64_t wide_ = 0, rail_ = 0, piece_ = 0;
};

/// Computes the cost of calls as comm/hierarchical executes them: the ranks compare their calls; then,
/// for each chunk, the ranks of a host sum their slices, the rails sum them between hosts, and the
/// slices are all-gathered in the heap, while the next chunks are sent. All rails of a host share its
/// link.
///
/// Result  all_reduce of N bytes on h hosts: 2N(h-1)/h of a host's link, and 2 latencies per chunk.
///         all_gather and reduce_scatter of N bytes: every block to or from h-1 hosts, in one piece.
///         all_to_all: what is for other hosts, in one piece.
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
  /// Of shares of different sizes, by rank.
  HostedCall all_gather(DType dtype, const std::vector<int64_t>& counts, bool in_heap);
  HostedCall reduce_scatter(DType dtype, const std::vector<int64_t>& counts, bool in_heap);
  /// `counts`: elements by sender and receiver; one: between any two.
  HostedCall all_to_all(DType dtype, const std::vector<int64_t>& counts);
  HostedCall tree(const schedule::GrainTree& tree, DType dtype, int64_t count);

 private:
  struct Local {
    double seconds = 0;
    int64_t wire_bytes = 0;  // of all hosts
  };
  using CountsOfHost = std::function<std::vector<int64_t>(int host)>;

  Local local(schedule::Routine routine, DType dtype, int64_t share, bool in_heap);
  Local local(schedule::Routine routine, DType dtype, const CountsOfHost& counts, bool in_heap);
  void add_list(const schedule::StepList& list, DType dtype, bool in_heap, int64_t times,
                Local& cost);
  HostedCall exchange_of(const HostShares& shares, DType dtype);
  double comparison_seconds();
  int64_t elements_reduced(schedule::ReduceOp op, int64_t count) const;
  HostedCall small_call(int64_t sent, double sent_by_host) const;

  const HostLayout& hosts_;
  cost::Chooser& chooser_;
};

}  // namespace hanji::plan
