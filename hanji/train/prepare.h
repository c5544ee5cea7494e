#pragma once

#include "hanji/plan/plan.h"

namespace hanji::train {

/// Everything that is decided before anything starts: reads the machine, measures memory and
/// kernels (once per machine; later runs read the cache folder), and plans.
///
/// Cost    some tenths of a second where nothing was measured yet.
/// Errors  as plan::make_plan().
Result<plan::Plan> prepare(const plan::Config& config, const plan::DataFacts& data);

/// The same, opening the data that `config` names. Errors: as open_dataset() besides.
Result<plan::Plan> prepare(const plan::Config& config);

/// The rates of `ranks` processes that exchange data on this machine, measured now.
Result<cost::Rates> measure_rates(const topology::Machine& machine, int ranks);

}  // namespace hanji::train
