#include "hanji/plan/sharding.h"

#include <algorithm>

namespace hanji::plan {
namespace {

double w(int64_t width) { return static_cast<double>(width); }

// What a ring sends per rank of each byte that it gathers or scatters.
double ring(int ranks) { return ranks < 2 ? 0 : static_cast<double>(ranks - 1) / ranks; }

}  // namespace

StateBytes state_bytes(Sharding sharding, double parameters, const StateWidths& widths,
                       const ShardRanks& ranks) {
  const double all = std::max(1, ranks.ranks);
  const double group = std::max(1, ranks.hybrid_ranks);
  double cut_parameters = 1, cut_gradients = 1, cut_optimizer = 1;
  switch (sharding) {
    case Sharding::kReplicas:
    case Sharding::kServer: break;
    case Sharding::kZero1: cut_optimizer = all; break;
    case Sharding::kZero2: cut_gradients = cut_optimizer = all; break;
    case Sharding::kZero3: cut_parameters = cut_gradients = cut_optimizer = all; break;
    case Sharding::kHybrid: cut_parameters = cut_gradients = cut_optimizer = group; break;
  }
  StateBytes bytes{w(widths.parameter) * parameters / cut_parameters,
                   w(widths.gradient) * parameters / cut_gradients,
                   w(widths.optimizer) * parameters / cut_optimizer};
  if (sharding == Sharding::kServer) bytes.optimizer = 0;
  return bytes;
}

StateBytes server_bytes(double parameters, const StateWidths& widths, const ShardRanks& ranks) {
  const double share = parameters / std::max(1, ranks.servers);
  return {w(widths.parameter) * share, w(widths.gradient) * share, w(widths.optimizer) * share};
}

double sent_bytes(Sharding sharding, double parameters, const StateWidths& widths,
                  const ShardRanks& ranks) {
  const double p = w(widths.parameter) * parameters, g = w(widths.gradient) * parameters;
  const int group = std::max(1, ranks.hybrid_ranks);
  switch (sharding) {
    case Sharding::kReplicas: return 2 * g * ring(ranks.ranks);
    case Sharding::kServer: return g;  // the servers send as much to all workers together
    case Sharding::kZero1:
    case Sharding::kZero2: return (g + p) * ring(ranks.ranks);
    case Sharding::kZero3: return (g + 2 * p) * ring(ranks.ranks);
    case Sharding::kHybrid:
      return (g + 2 * p) * ring(group) + 2 * g / group * ring(ranks.ranks / group);
  }
  return 0;
}

}  // namespace hanji::plan
