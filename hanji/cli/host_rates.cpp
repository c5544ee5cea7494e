#include "hanji/cli/host_rates.h"

#include <fmt/format.h>

#include "hanji/base/cache_folder.h"
#include "hanji/base/units.h"
#include "hanji/cli/collective_options.h"
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
  result.source = comm::use_or_fit(result.rates, folder, machine,
                                   {.ranks = ranks, .budget_seconds = comm::kShortSeconds})
                      .or_throw();
  return result;
}

void add_link_options(const Verb& verb, std::string& bandwidth, std::string& latency) {
  verb.add_option("--bandwidth", &bandwidth,
                  "of every link, each way: 25GB/s; default: what this host measures")
      .type_name("RATE");
  verb.add_option("--latency", &latency, "of every message: 10us; default: none").type_name("TIME");
}

void check_links(const std::string& bandwidth, const std::string& latency,
                 OptionMistakes& mistakes) {
  if (bandwidth.empty() && !latency.empty()) {
    mistakes.add("--latency is of links; add --bandwidth, such as 25GB/s");
  }
  if (!bandwidth.empty()) {
    const auto rate = parse_rate(bandwidth);
    if (!rate.ok()) mistakes.add(rate.status().at("--bandwidth"));
  }
  if (!latency.empty()) {
    const auto seconds = base::parse_seconds(latency);
    if (!seconds.ok()) mistakes.add(seconds.status().at("--latency"));
  }
}

NamedNetwork network_of(const std::string& bandwidth, const std::string& latency) {
  OptionMistakes mistakes;
  check_links(bandwidth, latency, mistakes);
  mistakes.throw_if_any();
  NamedNetwork links{{}, "links of " + bandwidth};
  links.source += latency.empty() ? ", no latency" : ", latency " + latency;
  links.network.bytes_per_second = parse_rate(bandwidth).or_throw();
  if (!latency.empty()) links.network.latency_seconds = base::parse_seconds(latency).or_throw();
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
