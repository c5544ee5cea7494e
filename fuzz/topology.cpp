// Hosts as `hanji topo --json` writes them, one or a list: what an order of ranks is made of.
#include <algorithm>

#include "fuzz/input.h"
#include "hanji/topology/graph_text.h"
#include "hanji/topology/rank_order.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  const auto hosts = topology::graphs_from_json(fuzz::text_of(data, size));
  if (!hosts.ok()) return 0;
  for (const topology::Graph& host : *hosts) {
    (void)topology::graph_text(host);
    fuzz::require(topology::graphs_from_json(topology::graph_json(host, nullptr)).ok(),
                  "a host that was read is written and read again");
  }
  constexpr int kRanks = 4;
  const auto paths = topology::rank_paths(*hosts, kRanks);
  if (!paths.ok()) return 0;
  std::vector<int> ranks = topology::order_ranks(*paths).ranks;
  fuzz::require(ranks.size() == kRanks && ranks[0] == 0, "a ring begins with rank 0");
  std::ranges::sort(ranks);
  for (int rank = 0; rank < kRanks; ++rank) {
    fuzz::require(ranks[static_cast<size_t>(rank)] == rank, "a ring has every rank once");
  }
  return 0;
}
