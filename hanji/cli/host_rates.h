#pragma once

#include <string>

#include "hanji/cost/rates.h"
#include "hanji/topology/machine.h"

namespace hanji::cli {

/// What this host does with `ranks` ranks, and how that is known.
struct HostRates {
  cost::Rates rates;
  std::string why_not_fitted;  ///< Empty: by fitted costs. Else a sentence with the way out.
};

/// Rates as measured in a moment, with the costs that `hanji bench --fit` stored where they are
/// fresh. Errors: throws Error.
HostRates host_rates(const topology::Machine& machine, int ranks);

}  // namespace hanji::cli
