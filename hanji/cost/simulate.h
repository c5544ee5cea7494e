#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/cost/terms.h"
#include "hanji/schedule/step_list.h"

namespace hanji::cost {

/// Machines on a switch that is never the bottleneck: each rank has one port to send and one to
/// receive, both of the same rate, used at once (full duplex).
struct Network {
  double latency_seconds = 0;  ///< From the start of a message until its first byte flows.
  double bytes_per_second = 1e9;
  /// Bytes of a result per second that a rank makes of two operands; infinite: no time.
  double reduce_bytes_per_second = std::numeric_limits<double>::infinity();
};

/// One message of a simulated list.
struct Transfer {
  int from = 0;
  int to = 0;
  int64_t bytes = 0;
  double start = 0;
  double end = 0;

  bool operator==(const Transfer&) const = default;
};

struct Timeline {
  std::vector<Transfer> transfers;  ///< By start, then by sender and receiver.
  Terms terms;

  double seconds() const { return terms.seconds(); }
};

/// Runs a list of messages on a network.
///
/// Model   a message starts when both sides have come to it, waits the latency, and then flows
///         whole into the receiver's memory (store and forward: it is passed on when it is all
///         there). Messages that use a port at once share it, max-min fairly; those of one group
///         wait their latency at once. Copies take no time.
///         Of a list that keeps its longest path, that alone is timed, on a network that gives all
///         ranks the same.
/// Cost    O(m) for m messages; O(m (m' + p)) where ports are shared by m' messages at once.
/// Errors  invalid_argument where check_bounds() refuses the list, or ranks wait for ever;
///         unsupported for a list with a sync or an operand of another rank: those share memory.
/// Source  the linear model with one port: Hockney, Parallel Computing 20(3), 1994; shares:
///         Bertsekas and Gallager, "Data Networks", 1992, section 6.5.2.
Result<Timeline> simulate(const schedule::StepList& list, size_t element_bytes,
                          const Network& network);

/// Messages that start at the same moment.
struct Round {
  double start = 0;
  std::vector<Transfer> transfers;
};
std::vector<Round> rounds_of(const Timeline& timeline);

}  // namespace hanji::cost
