#pragma once

#include <vector>

#include "hanji/plan/plan.h"

namespace hanji::plan {

/// Contradictions between configuration, machine and data, all at once.
Status check_inputs(const PlanInputs& inputs);

/// Checks the ranks' places on hosts; of `plan` config, ranks, mesh and hosts are read.
Status check_hosts(const Plan& plan);

/// The largest number that divides the ranks of every host.
int ranks_that_divide(const std::vector<int>& hosts);

}  // namespace hanji::plan
