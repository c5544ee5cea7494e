#pragma once

#include <string>

#include "hanji/cost/rates.h"
#include "hanji/topology/machine.h"

namespace hanji::cli {

/// What this host does with `ranks` ranks, and how that is known.
struct HostRates {
  cost::Rates rates;
  std::string source;  ///< When costs were timed, and what would be closer.
};

/// Rates as measured in a moment, and costs as comm::use_or_fit() has them. Errors: throws Error.
HostRates host_rates(const topology::Machine& machine, int ranks);

}  // namespace hanji::cli
