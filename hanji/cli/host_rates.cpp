#include "hanji/cli/host_rates.h"

#include <fmt/format.h>

#include "hanji/base/cache_folder.h"
#include "hanji/base/units.h"
#include "hanji/cli/collective_options.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/comm/fit_costs.h"
#include "hanji/cost/compare.h"
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

NamedNetwork network_of(const std::string& bandwidth, const std::string& latency) {
  OptionMistakes mistakes;
  NamedNetwork links{{}, "links of " + bandwidth};
  const auto rate = parse_rate(bandwidth);
  if (!rate.ok()) mistakes.add(rate.status().at("--bandwidth"));
  links.source += latency.empty() ? ", no latency" : ", latency " + latency;
  const auto seconds = latency.empty() ? Result<double>(0.0) : base::parse_seconds(latency);
  if (!seconds.ok()) mistakes.add(seconds.status().at("--latency"));
  mistakes.throw_if_any();
  links.network.bytes_per_second = *rate;
  links.network.latency_seconds = *seconds;
  return links;
}

Links network_links(const std::string& bandwidth, const std::string& latency, int ranks) {
  const NamedNetwork links = network_of(bandwidth, latency);
  cost::Question question;
  question.ranks = ranks;
  question.network = links.network;
  const auto seconds_of = [question](schedule::Routine routine, int64_t bytes) mutable {
    question.routine = routine;
    question.bytes = bytes;
    return cost::answers(question).or_throw().front().seconds();
  };
  return {seconds_of, links.source};
}

}  // namespace hanji::cli
