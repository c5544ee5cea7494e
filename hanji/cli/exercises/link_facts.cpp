#include "hanji/cli/exercises/link_facts.h"

#include <algorithm>

namespace hanji::cli {
namespace {

using topology::VertexKind;

void read_gpu_links(const topology::Graph& graph, LinkFacts& facts) {
  const auto is_gpu = [&](int vertex) {
    return graph.vertices[static_cast<size_t>(vertex)].kind == VertexKind::kGpu;
  };
  for (const topology::Link& link : graph.links) {
    if (!is_gpu(link.from) && !is_gpu(link.to)) continue;
    if (link.kind == topology::LinkKind::kPcie) {
      facts.pcie_rate = std::max(facts.pcie_rate, link.bytes_per_second);
    }
    if (link.bytes_per_second <= facts.gpu_link_rate) continue;
    facts.gpu_link_rate = link.bytes_per_second;
    facts.gpu_link = link.label;
  }
}

}  // namespace

LinkFacts facts_of_host(const topology::Graph& graph, const topology::CoreRates& rates,
                        const std::optional<topology::GpuRates>& gpu) {
  LinkFacts facts;
  if (!rates.copies.empty()) {
    facts.memory_one = rates.copies.front().bytes_per_second;
    facts.memory_all = rates.copies.back().bytes_per_second;
  }
  if (!rates.pairs.empty()) facts.between_cores = rates.pairs.back().bytes_per_second;
  facts.has_gpu = gpu.has_value();
  if (!gpu) return facts;
  facts.gpu_copy = gpu->host_bytes_per_second;
  read_gpu_links(graph, facts);
  return facts;
}

}  // namespace hanji::cli
