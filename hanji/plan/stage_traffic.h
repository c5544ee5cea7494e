#pragma once

#include <cstdint>
#include <vector>

#include "hanji/plan/network.h"

namespace hanji::plan {

struct Plan;

/// What stages of different ranks send each other in a step: flows and their gradients.
struct StageTraffic {
  int64_t bytes = 0;          ///< Within hosts, of all ranks,
  int64_t network_bytes = 0;  ///< and between hosts.
  /// Of the host with most: one way, that with more. The same bytes come back as gradients.
  int64_t busiest_bytes = 0;
  int busiest_host = 0;
  double bytes_per_second = 0;  ///< Of a host's link, each way.

  /// Of the busiest link, if it had nothing else to do.
  double link_seconds() const {
    return network_bytes > 0 ? static_cast<double>(busiest_bytes) / bytes_per_second : 0;
  }
};

StageTraffic stage_traffic(const Plan& plan);

/// Whether the ranks of a stage and of the next one, in a data coordinate, are on two hosts.
bool passes_hosts(const Plan& plan, int stage, int data_coordinate);

/// Seconds of a message between each stage and the next on the link between their hosts, which other data
/// coordinates use at the same time; 0 within a host. Empty on one host.
std::vector<double> message_seconds(const Plan& plan, int data_coordinate);

}  // namespace hanji::plan
