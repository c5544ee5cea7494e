#include "hanji/cli/bench_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "hanji/base/cache_folder.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/cli/print_text.h"
#include "hanji/comm/fit_costs.h"
#include "hanji/cost/usage.h"
#include "hanji/report/collective_cost.h"

namespace hanji::cli {
namespace {

constexpr size_t kMaxShown = 5;

std::string common_text(const cost::FittedCosts& costs) {
  using report::exact_seconds;
  return fmt::format("call {}, meeting {}, step {}, wake-up {}\n\n",
                     exact_seconds(costs.call_seconds), exact_seconds(costs.sync_seconds),
                     exact_seconds(costs.step_seconds), exact_seconds(costs.wake_seconds));
}

std::string levels_text(const cost::FittedCosts& costs, int columns) {
  std::vector<base::TextTable::Column> headings = {
      {"working set"}, {"read"}, {"write"}, {"update"}, {"pass"}, {"claim"}, {"others"}};
  for (const DType dtype : cost::kFittedTypes)
    headings.push_back({std::string(base::name_of(dtype))});
  base::TextTable table(std::move(headings));
  for (size_t i = 0; i < cost::kLevelBytes.size(); ++i) {
    const cost::Level& level = costs.levels[i];
    std::vector<std::string> row = {base::format_bytes(cost::kLevelBytes[i])};
    for (const double one :
         {level.read, level.write, level.update, level.pass, level.claim, level.others}) {
      row.push_back(fmt::format("{:.1f}", one * 1e12));
    }
    for (const double one : level.combine) row.push_back(fmt::format("{:.1f}", one * 1e12));
    table.add(std::move(row));
  }
  return table.text(columns) + "seconds * 10^-12 per byte\n\n";
}

// The calls that the terms explain least.
std::string residuals_text(const comm::Fit& fit) {
  struct Residual {
    double error;
    const cost::TimedCall* call;
  };
  std::vector<Residual> all;
  for (const cost::TimedCall& call : fit.calls) {
    all.push_back({cost::error_of_terms(call, fit.stored.costs), &call});
  }
  std::ranges::sort(all, std::greater(), [](const Residual& one) { return std::abs(one.error); });
  std::string text = fmt::format(
      "residuals of {} calls: median {:.1f} %, worst {:.0f} %; kept as corrections. The largest:\n",
      all.size(), fit.stored.costs.median_error * 100, fit.stored.costs.worst_error * 100);
  for (size_t i = 0; i < std::min(kMaxShown, all.size()); ++i) {
    const cost::TimedCall& call = *all[i].call;
    text += fmt::format(
        "  {:<15}{:<8}{:<9} {:>10} {:>10} {:>+6.0f} %\n", name_of(call.list->routine),
        call.list->algorithm, base::name_of(call.dtype),
        base::format_bytes(static_cast<int64_t>(cost::tensor_bytes(*call.list, call.dtype))),
        report::exact_seconds(call.seconds), all[i].error * 100);
  }
  return text;
}

}  // namespace

int bench_fit(const BenchFitOptions& options) {
  const auto machine = topology::read_machine().or_throw();
  const int ranks = options.ranks > 0 ? options.ranks : std::max(2, machine.usable_cores);
  const auto folder = base::cache_folder().or_throw();
  const comm::Fit fit = comm::fit_costs_here(machine, {.ranks = ranks}).or_throw();
  base::throw_if_error(cost::save_costs(folder, fit.stored));
  if (options.as_json) {
    std::cout << cost::to_json(fit.stored) << std::flush;
    return 0;
  }
  const cost::FittedCosts& costs = fit.stored.costs;
  std::cout << fmt::format("costs of {} on {} processors, {}: {}\n", base::counted(ranks, "rank"),
                           costs.processors, fit.stored.stamp.placement, machine.cpu_model)
            << common_text(costs) << levels_text(costs, output_columns()) << residuals_text(fit)
            << fmt::format("\nstored in {}\n", cost::costs_file(folder, ranks).string())
            << std::flush;
  return 0;
}

}  // namespace hanji::cli
