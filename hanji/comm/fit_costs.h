#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/cost/fit.h"
#include "hanji/cost/stored.h"
#include "hanji/topology/machine.h"

namespace hanji::comm {

class Group;
struct GroupOptions;

/// Calls that were timed here, and what they cost.
struct Fit {
  std::vector<cost::TimedCall> calls;
  cost::StoredCosts stored;
};

struct FitOptions {
  int ranks = 2;
  double budget_seconds = cost::kThoroughSeconds;
  int64_t most_bytes = cost::kLevelBytes.back();  ///< Of a working set that is timed.
};

/// Times cost::design_calls() on this machine's shared memory and fits costs to them.
///
/// Cost    about the budget, most of it spent on timing; memory of the largest calls.
/// Errors  as time_calls(); invalid_argument for fewer than 2 ranks, which cost nothing to join.
Result<Fit> fit_costs_here(const topology::Machine& machine, const FitOptions& options);

/// The budget in seconds of a fit that nobody asked for; two rounds of every call are timed at least.
inline constexpr double kShortSeconds = 1;

/// Gives `rates` costs of so many ranks: those that `folder` keeps where they are fresh, else
/// those of a fit by `options`, which are kept there for the next time. Costs that were fitted while other
/// processes used more than topology::kMaxLoad of the CPUs are fitted again once, and those with less load kept.
///
/// Result  where they come from, in one sentence. A folder that cannot be written to is no failure.
/// Cost    the fit where nothing fresh is kept: for kShortSeconds a few seconds for 2 ranks on cores of their
///         own, more for more. Nothing for fewer than 2 ranks.
/// Errors  as fit_costs_here().
Result<std::string> use_or_fit(cost::Rates& rates, const std::filesystem::path& folder,
                               const topology::Machine& machine, FitOptions options);

/// `group`, whose ranks are processes or threads of one host, with `options` and a chooser of its
/// own: with the costs that rank 0's `folder` keeps for as many ranks on this machine if they are fresh, else
/// with typical ones. Rank 0 reads them for all, and takes the machine as the CPUs of all ranks.
///
/// Order   every rank of `group` calls it, with the same options.
/// Cost    a few collectives; if costs are kept, the reading of this host.
/// Errors  throws as regroup() and Work::wait().
Group with_kept_costs(const Group& group, GroupOptions options,
                      const Result<std::filesystem::path>& folder);

/// Times a few calls again.
/// Result  the median of |predicted / measured - 1|; above cost::kMaxDisagreement the machine is
///         not the one that was fitted.
/// Cost    about a fifth of a second.
Result<double> disagreement(const topology::Machine& machine, const cost::FittedCosts& costs);

}  // namespace hanji::comm
