#pragma once

#include <optional>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/trace/clock_offset.h"

namespace hanji::train {

/// The clock of this host in terms of rank 0's. Clocks of hosts drift, so they are compared twice, each time by 32
/// questions of a host's first rank.
///
/// Cost    some milliseconds a host; nothing on one host.
/// Order   collective, the constructor and offset().
/// Errors  throw as Work::wait().
class HostClocks {
 public:
  /// Compares them the first time. \param ranks_per_host  in order of ranks.
  HostClocks(const comm::Group& group, std::vector<int> ranks_per_host);
  /// Compares them again. Result: the same for all ranks of a host; its own clock on rank 0's.
  trace::ClockOffset offset() const;

 private:
  std::optional<trace::ClockReading> compare() const;

  const comm::Group group_;
  const std::vector<int> ranks_per_host_;
  std::optional<trace::ClockReading> begin_;
};

}  // namespace hanji::train
