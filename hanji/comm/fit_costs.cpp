#include "hanji/comm/fit_costs.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/regroup.h"
#include "hanji/comm/share_text.h"
#include "hanji/comm/time_calls.h"
#include "hanji/cost/select.h"
#include "hanji/topology/cpu_load.h"

namespace hanji::comm {
namespace {

constexpr double kProbeSeconds = 0.2;
// all_reduce of so many floats: started, from the caches, and between them and memory.
constexpr std::array<int64_t, 3> kProbeCounts = {1 << 12, 1 << 17, 1 << 20};

TimeCallsOptions options_for(const topology::Machine& machine, int ranks, double budget_seconds) {
  return {.ranks = ranks,
          .rank_cpus = topology::cpus_per_rank(machine, ranks),
          .usable_cores = machine.usable_cores,
          .budget_seconds = budget_seconds};
}

/// The CPUs of all ranks together: a launcher may have given each its own.
cpu_set_t cpus_of(const Group& group) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof cpus, &cpus);
  at::Tensor mine = at::empty({static_cast<int64_t>(sizeof cpus)}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), &cpus, sizeof cpus);
  at::Tensor all = at::empty({group.size() * mine.numel()}, at::kByte);
  all_gather(all, mine, group, {.label = "CPUs of the ranks"}).wait();
  for (int rank = 0; rank < group.size(); ++rank) {
    cpu_set_t one;
    std::memcpy(&one, all.const_data_ptr<uint8_t>() + rank * mine.numel(), sizeof one);
    CPU_OR(&cpus, &cpus, &one);
  }
  return cpus;
}

/// This host as a process that may use `cpus` sees it.
Result<topology::Machine> read_machine_of(const cpu_set_t& cpus) {
  Result<topology::Machine> machine = base::internal("this host was not read");
  std::thread([&] {  // the mask of a thread is its own
    sched_setaffinity(0, sizeof cpus, &cpus);
    machine = topology::read_machine();
  })
      .join();
  return machine;
}

/// Costs as JSON; empty where `folder` keeps none that are fresh. `hanji doctor` says why.
std::string kept_costs(const std::filesystem::path& folder, const cpu_set_t& cpus, int ranks) {
  if (!cost::load_costs(folder, ranks).ok()) return "";  // without reading the host
  const auto machine = read_machine_of(cpus);
  cost::Rates rates;
  if (!machine.ok() || !cost::use_fitted(rates, folder, *machine, ranks).empty()) return "";
  return cost::to_json(*rates.fitted);
}

}  // namespace

Group with_kept_costs(const Group& group, GroupOptions options,
                      const Result<std::filesystem::path>& folder) {
  const cpu_set_t cpus = cpus_of(group);
  std::string costs;
  if (group.rank() == 0 && folder.ok()) costs = kept_costs(*folder, cpus, group.size());
  costs = share_text(std::move(costs), group, "costs of collectives");
  cost::Rates rates;
  if (!costs.empty()) rates.fitted = cost::fitted_from_json(costs).or_throw();
  options.chooser = std::make_shared<cost::Chooser>(std::move(rates));
  return regroup(group, std::move(options));
}

Result<Fit> fit_costs_here(const topology::Machine& machine, const FitOptions& options) {
  const int ranks = options.ranks;
  if (ranks < 2) {
    return base::invalid_argument(fmt::format(
        "costs are fitted for at least 2 ranks, not {}; one has nobody to meet", ranks));
  }
  Fit fit;
  fit.calls = cost::design_calls(ranks, options.most_bytes);
  const TimeCallsOptions how = options_for(machine, ranks, options.budget_seconds);
  const auto begin = topology::read_cpu_times();
  HANJI_RETURN_IF_ERROR(time_calls(fit.calls, how));
  const auto end = topology::read_cpu_times();
  if (begin.ok() && end.ok()) fit.stored.load = topology::load_of_others(*begin, *end);
  fit.stored.stamp = cost::stamp_of(machine, ranks);
  fit.stored.fitted_at = base::wall_ns() / 1'000'000'000;
  fit.stored.fit_seconds = options.budget_seconds;
  HANJI_ASSIGN_OR_RETURN(
      fit.stored.costs,
      cost::fit_costs(fit.calls, ranks, std::min(ranks, std::max(1, machine.usable_cores))));
  return fit;
}

Result<std::string> use_or_fit(cost::Rates& rates, const std::filesystem::path& folder,
                               const topology::Machine& machine, FitOptions options) {
  const int ranks = options.ranks;
  if (ranks < 2) return std::string("one rank meets nobody; its rates were measured just now");
  const std::string why_not = cost::use_fitted(rates, folder, machine, ranks);
  cost::StoredCosts before;
  if (why_not.empty()) {
    HANJI_ASSIGN_OR_RETURN(before, cost::load_costs(folder, ranks));
    if (before.load <= topology::kMaxLoad || before.fits >= cost::kMaxFits) {
      return cost::describe(before);
    }
    options.budget_seconds = before.fit_seconds;
  }
  HANJI_ASSIGN_OR_RETURN(Fit fit, fit_costs_here(machine, options));
  cost::StoredCosts& best = fit.stored;
  if (why_not.empty()) {
    if (before.load <= best.load) best = std::move(before);
    best.fits = cost::kMaxFits;
  }
  (void)cost::save_costs(folder, best);  // else the next one fits again
  rates.fitted = best.costs;
  if (why_not.empty()) return cost::describe(best);
  const std::string load = topology::describe_load(best.load);
  return fmt::format("timed just now for {:.2g} s: {}{}{}", best.fit_seconds, why_not,
                     load.empty() ? "" : "; ", load);
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
