#include "hanji/cli/exercises/link_facts.h"

#include <algorithm>

namespace hanji::cli {
namespace {

using base::Json;

double rate_in(const Json& json, const char* member = "bytes_per_second") {
  const auto found = json.find(member);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

void read_gpu_links(const Json& topo, LinkFacts& facts) {
  for (const Json& link : topo.at("links")) {
    const std::string to = link.at("to"), from = link.at("from"), kind = link.at("kind");
    if (!to.starts_with("gpu:") && !from.starts_with("gpu:")) continue;
    const double rate = rate_in(link);
    if (kind == "pcie") facts.pcie_rate = std::max(facts.pcie_rate, rate);
    if (rate <= facts.gpu_link_rate) continue;
    facts.gpu_link_rate = rate;
    facts.gpu_link = link.at("label");
  }
}

}  // namespace

Result<LinkFacts> read_link_facts(const Json& topo) {
  const Json& measured = topo.at("measured");
  const Json& copies = measured.at("copies");
  if (copies.empty()) return base::internal("hanji topo --measure: no copy was measured");
  LinkFacts facts;
  facts.memory_one = rate_in(copies.front());
  facts.memory_all = rate_in(copies.back());
  const Json& pairs = measured.at("pairs");
  if (!pairs.empty()) facts.between_cores = rate_in(pairs.back());
  facts.gpu_copy = rate_in(topo.at("measured_gpu"), "host_bytes_per_second");
  facts.has_gpu = facts.gpu_copy > 0;
  if (facts.has_gpu) read_gpu_links(topo, facts);
  return facts;
}

}  // namespace hanji::cli
