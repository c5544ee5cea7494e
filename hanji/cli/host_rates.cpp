#include "hanji/cli/host_rates.h"

#include "hanji/base/cache_folder.h"
#include "hanji/comm/fit_costs.h"
#include "hanji/cost/measure.h"

namespace hanji::cli {

HostRates host_rates(const topology::Machine& machine, int ranks) {
  cost::MeasureOptions options;
  options.ranks = ranks;
  options.usable_cores = machine.usable_cores;
  if (!machine.caches.empty()) options.cache_bytes = machine.caches.back().bytes;
  options.rank_cpus = topology::cpus_per_rank(machine, ranks);
  HostRates result;
  result.rates = cost::measure_rates(options).or_throw();
  const auto folder = base::cache_folder().or_throw();
  result.source = comm::use_or_fit(result.rates, folder, machine, ranks).or_throw();
  return result;
}

}  // namespace hanji::cli
