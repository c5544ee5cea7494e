#pragma once

#include <vector>

#include "hanji/base/status.h"
#include "hanji/cost/fit.h"

namespace hanji::comm {

struct TimeCallsOptions {
  int ranks = 2;
  std::vector<std::vector<int>> rank_cpus = {};  ///< Logical CPUs of each rank; empty pins nobody.
  int usable_cores = 0;       ///< Processors of all ranks together; 0: what the mask allows.
  double budget_seconds = 4;  ///< At least two rounds over all calls are run, whatever they take.
};

/// Runs every call in a segment of its own, ranks as threads of this process, in rows of equal
/// calls; and gives each its seconds: the median over rounds of the mean over a row, so that what
/// disturbs one round does not count. Calls that take long rest in most rounds after the third.
///
/// Shape   lists of `ranks` ranks that share memory.
/// Cost    the budget, and the memory of the largest call.
/// Errors  invalid_argument for a list of other ranks; out_of_memory if tensors or threads cannot
///         be had; what the engine reports.
Status time_calls(std::vector<cost::TimedCall>& calls, const TimeCallsOptions& options);

}  // namespace hanji::comm
