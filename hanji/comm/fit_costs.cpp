#include "hanji/comm/fit_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/clock.h"
#include "hanji/comm/time_calls.h"
#include "hanji/cost/select.h"

namespace hanji::comm {
namespace {

constexpr double kShortSeconds = 1;  // and two rounds of every call at least
constexpr double kProbeSeconds = 0.2;
// all_reduce of so many floats: started, from the caches, and between them and memory.
constexpr std::array<int64_t, 3> kProbeCounts = {1 << 12, 1 << 17, 1 << 20};

TimeCallsOptions options_for(const topology::Machine& machine, int ranks, double budget_seconds) {
  return {.ranks = ranks,
          .rank_cpus = topology::cpus_per_rank(machine, ranks),
          .usable_cores = machine.usable_cores,
          .budget_seconds = budget_seconds};
}

}  // namespace

Result<Fit> fit_costs_here(const topology::Machine& machine, const FitOptions& options) {
  const int ranks = options.ranks;
  if (ranks < 2) {
    return base::invalid_argument(fmt::format(
        "costs are fitted for at least 2 ranks, not {}; one has nobody to meet", ranks));
  }
  Fit fit;
  fit.calls = cost::design_calls(ranks, options.most_bytes);
  const TimeCallsOptions how = options_for(machine, ranks, options.budget_seconds);
  HANJI_RETURN_IF_ERROR(time_calls(fit.calls, how));
  fit.stored.stamp = cost::stamp_of(machine, ranks);
  fit.stored.fitted_at = base::wall_ns() / 1'000'000'000;
  fit.stored.fit_seconds = options.budget_seconds;
  HANJI_ASSIGN_OR_RETURN(
      fit.stored.costs,
      cost::fit_costs(fit.calls, ranks, std::min(ranks, std::max(1, machine.usable_cores))));
  return fit;
}

Result<std::string> use_or_fit(cost::Rates& rates, const std::filesystem::path& folder,
                               const topology::Machine& machine, int ranks) {
  if (ranks < 2) return std::string("one rank meets nobody; its rates were measured just now");
  const std::string why_not = cost::use_fitted(rates, folder, machine, ranks);
  if (why_not.empty()) {
    HANJI_ASSIGN_OR_RETURN(const cost::StoredCosts stored, cost::load_costs(folder, ranks));
    return cost::describe(stored);
  }
  HANJI_ASSIGN_OR_RETURN(
      Fit fit, fit_costs_here(machine, {.ranks = ranks, .budget_seconds = kShortSeconds}));
  (void)cost::save_costs(folder, fit.stored);  // else the next one fits again
  rates.fitted = fit.stored.costs;
  return fmt::format("timed just now for {:.2g} s: {}", fit.stored.fit_seconds, why_not);
}

Result<double> disagreement(const topology::Machine& machine, const cost::FittedCosts& costs) {
  std::vector<cost::TimedCall> calls;
  for (const int64_t count : kProbeCounts) {
    const cost::Query query{.routine = schedule::Routine::kAllReduce,
                            .element_bytes = 4,
                            .ranks = costs.ranks,
                            .count = count};
    for (const auto& one : cost::candidates_for(query, cost::Rates())) {
      calls.push_back({one.list, DType::kFloat32});
    }
  }
  HANJI_RETURN_IF_ERROR(time_calls(calls, options_for(machine, costs.ranks, kProbeSeconds)));
  std::vector<double> errors;
  for (const auto& call : calls) errors.push_back(std::abs(cost::error_of(call, costs)));
  std::ranges::sort(errors);
  return errors[errors.size() / 2];
}

}  // namespace hanji::comm
