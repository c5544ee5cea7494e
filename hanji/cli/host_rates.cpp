#include "hanji/cli/host_rates.h"

#include "hanji/cost/measure.h"
#include "hanji/cost/stored.h"
#include "hanji/train/run_folder.h"

namespace hanji::cli {

HostRates host_rates(const topology::Machine& machine, int ranks) {
  cost::MeasureOptions options;
  options.ranks = ranks;
  options.usable_cores = machine.usable_cores;
  if (!machine.caches.empty()) options.cache_bytes = machine.caches.back().bytes;
  options.rank_cpus = topology::cpus_per_rank(machine, ranks);
  HostRates result;
  result.rates = cost::measure_rates(options).or_throw();
  const auto folder = train::cache_folder();
  result.why_not_fitted = folder.ok() ? cost::use_fitted(result.rates, *folder, machine, ranks)
                                      : folder.status().message();
  return result;
}

}  // namespace hanji::cli
