#pragma once

#include <string>
#include <vector>

#include "hanji/plan/capacity.h"

namespace hanji::plan {

/// A change that makes a model fit.
struct Change {
  CapacityQuery query;
  Sharding sharding = Sharding::kReplicas;
  std::string words;  ///< e.g. "2 ranks with zero2".
  std::string price;  ///< e.g. "1 device more; every block computed twice".
};

/// Returns the cheapest changes that make the model fit, each with another strategy. If too few
/// strategies fit, also one of them with more devices and less computation, or on larger devices.
///
/// Result  at most `most`. Sorted by fewer devices, then less computation, then fewer bytes sent,
///         then larger micro-batches; larger devices last. Ranks are increased by two up to those of a host,
///         then by whole hosts.
std::vector<Change> cheapest_changes(const CapacityQuery& query, size_t most = 3);

}  // namespace hanji::plan
