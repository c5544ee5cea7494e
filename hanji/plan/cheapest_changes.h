#pragma once

#include <string>
#include <vector>

#include "hanji/plan/capacity.h"

namespace hanji::plan {

/// What to do where a model does not fit.
struct Change {
  CapacityQuery query;
  Sharding sharding = Sharding::kReplicas;
  std::string words;  ///< e.g. "2 ranks with zero2".
  std::string price;  ///< e.g. "1 device more; every block computed twice".
};

/// The cheapest changes that make the model fit, each with another strategy; where too few
/// strategies ever fit, one of them with more devices and less computing, or on larger devices.
///
/// Result  at most `most`. Fewer devices come first, then less computing, then fewer bytes sent,
///         then larger micro-batches; larger devices last. Ranks are tried by twos up to a host's,
///         then by whole hosts.
std::vector<Change> cheapest_changes(const CapacityQuery& query, size_t most = 3);

}  // namespace hanji::plan
