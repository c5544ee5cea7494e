#include "hanji/plan/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/limits.h"
#include "hanji/base/units.h"
#include "hanji/plan/network.h"
#include "hanji/plan/shard_plan.h"

namespace hanji::plan {
namespace {

constexpr int64_t kUnitsInFlight = 2;

int64_t whole(double bytes) { return std::llround(bytes); }

constexpr double kMaxRankBytes = 1e18;  // of a rank: no sum over categories and ranks overflows

const ModelFacts& facts_of(const CapacityQuery& query) {
  return query.recompute ? query.model.recomputed : query.model.facts;
}

/// By layer, each of which is a unit.
std::vector<double> parameters_of_layers(const ModelFacts& model) {
  std::vector<double> layers(model.layers.size() + 1);
  for (const ParameterFacts& one : model.parameters) {
    layers[static_cast<size_t>(one.layer)] += static_cast<double>(one.elements);
  }
  return layers;
}

/// Of the two largest neighbours.
double parameters_in_flight(const ModelFacts& model) {
  const std::vector<double> layers = parameters_of_layers(model);
  double most = 0;
  for (size_t i = 0; i + 1 < layers.size(); ++i) most = std::max(most, layers[i] + layers[i + 1]);
  return most;
}

class Counter {
 public:
  Counter(const CapacityQuery& query, Sharding sharding) : query_(query), sharding_(sharding) {}

  Capacity count() const {
    Capacity capacity;
    capacity.sharding = sharding_;
    capacity.rank = rank();
    capacity.host = host(capacity.rank);
    if (sharding_ == Sharding::kServer) capacity.server = server();
    const bool shared = query_.device.shares_host;
    const int64_t needed = total_bytes(shared ? capacity.host : capacity.rank);
    capacity.fits = needed <= query_.device.memory_bytes &&
                    total_bytes(capacity.server) <= query_.device.memory_bytes;
    capacity.not_in_train = train_limits(setup_of(query_, sharding_));
    return capacity;
  }

 private:
  double parameters() const { return static_cast<double>(query_.model.num_parameters); }

  bool shards_parameters() const {
    return (sharding_ == Sharding::kZero3 && query_.ranks.ranks > 1) ||
           (sharding_ == Sharding::kHybrid && query_.ranks.hybrid_ranks > 1);
  }
  bool cuts_gradients() const {
    return shards_parameters() || (sharding_ == Sharding::kZero2 && query_.ranks.ranks > 1);
  }
  /// One host has one copy of the parameters, for any sharding of the update.
  bool once_per_host() const {
    return query_.device.shares_host && query_.hosts() == 1 && sharding_ != Sharding::kReplicas &&
           sharding_ != Sharding::kServer;
  }

  double in_flight() const {
    return std::min(parameters(), parameters_in_flight(query_.model.facts));
  }

  int64_t bucket_bytes() const {
    if (!cuts_gradients()) return 0;
    const double widths = static_cast<double>(query_.widths.gradient);
    if (shards_parameters()) return whole(in_flight() * widths);
    return std::min(kUnitsInFlight * query_.bucket_bytes, whole(parameters() * widths));
  }

  int64_t unsharded_bytes() const {
    const bool is_view = query_.device.shares_host && query_.hosts() == 1;
    if (!shards_parameters() || is_view) return 0;
    return whole(in_flight() * static_cast<double>(query_.widths.parameter));
  }

  /// Whether ranks of several hosts cut one state: on CPUs they put shards in order in memory.
  bool shards_span_hosts() const {
    const int group =
        sharding_ == Sharding::kHybrid ? query_.ranks.hybrid_ranks : query_.ranks.ranks;
    const HostLayout hosts{*setup_of(query_, sharding_).hosts, {}};
    return query_.device.shares_host && cuts_states(sharding_) && groups_span_hosts(hosts, group);
  }

  /// Between hosts: of a bucket, or of the largest unit whole, on a rail and as a host's block.
  int64_t staging_bytes() const {
    if (query_.hosts() == 1) return 0;
    if (!shards_span_hosts()) return query_.bucket_bytes;
    const double widths =
        static_cast<double>(std::max(query_.widths.parameter, query_.widths.gradient));
    const double unit = shards_parameters()
                            ? widths * std::ranges::max(parameters_of_layers(query_.model.facts))
                            : static_cast<double>(query_.bucket_bytes);
    return whole(unit * (1 + 1.0 / query_.ranks_per_host + 1.0 / query_.hosts()));
  }

  int64_t activations() const {
    const ModelFacts& model = facts_of(query_);
    return activation_bytes(model, query_.micro_batch) +
           workspace_bytes(model, query_.micro_batch) + query_.micro_batch * model.sample_bytes +
           model.buffer_bytes;
  }

  std::vector<MemoryLine> lines(const StateBytes& states, int64_t activations, int64_t buckets,
                                int64_t unsharded, int64_t staging) const {
    std::vector<MemoryLine> out = {{"parameters", whole(states.parameters)},
                                   {"gradients", whole(states.gradients)},
                                   {"optimizer", whole(states.optimizer)},
                                   {"activations", activations},
                                   {"buckets", buckets},
                                   {"unsharded units", unsharded},
                                   {"staging", staging}};
    out.push_back({"slack", whole(query_.slack * static_cast<double>(total_bytes(out)))});
    return out;
  }

  std::vector<MemoryLine> rank() const {
    return lines(state_bytes(sharding_, parameters(), query_.widths, query_.ranks), activations(),
                 bucket_bytes(), unsharded_bytes(), staging_bytes());
  }

  std::vector<MemoryLine> host(const std::vector<MemoryLine>& rank) const {
    const int64_t here = std::min(query_.ranks.ranks, query_.ranks_per_host);
    std::vector<MemoryLine> out = rank;
    for (MemoryLine& line : out) line.bytes *= here;
    const bool replicated = sharding_ == Sharding::kZero1 || sharding_ == Sharding::kZero2;
    if (once_per_host() && replicated) {
      out.front().bytes = rank.front().bytes;
      out.back().bytes = 0;
      out.back().bytes = whole(query_.slack * static_cast<double>(total_bytes(out)));
    }
    return out;
  }

  std::vector<MemoryLine> server() const {
    return lines(server_bytes(parameters(), query_.widths, query_.ranks), 0, query_.bucket_bytes, 0,
                 0);
  }

  const CapacityQuery& query_;
  const Sharding sharding_;
};

}  // namespace

Capacity capacity_of(const CapacityQuery& query, Sharding sharding) {
  return Counter(query, sharding).count();
}

FactsOptions facts_options(const DeviceSpec& device, const StateWidths& widths) {
  return {.precision = widths.parameter == 2 ? Precision::kBFloat16 : Precision::kFloat32,
          .device = device.shares_host ? Device::kCpu : Device::kCuda,
          .casts = false};
}

TrainSetup setup_of(const CapacityQuery& query, Sharding sharding) {
  std::vector<int> hosts;
  for (int left = query.ranks.ranks; left > 0; left -= hosts.back()) {
    hosts.push_back(std::min(left, query.ranks_per_host));
  }
  const bool on_cpus = query.device.shares_host;
  return {.data = sharding,
          .device = on_cpus ? Device::kCpu : Device::kCuda,
          .engine = on_cpus ? Engine::kShm : Engine::kNccl,
          .hosts = std::move(hosts),
          .group_ranks = query.ranks.hybrid_ranks,
          .servers = sharding == Sharding::kServer ? query.ranks.servers : 0,
          .widths = query.widths};
}

Status check(const CapacityQuery& query) {
  std::string wrong;
  const auto refuse = [&](bool is_wrong, const std::string& words) {
    if (is_wrong) wrong += (wrong.empty() ? "" : "; ") + words;
  };
  const ShardRanks& ranks = query.ranks;
  refuse(ranks.ranks < 1 || ranks.ranks > base::kMaxRanks,
         fmt::format("--ranks {} is not in 1..{}", ranks.ranks, base::kMaxRanks));
  refuse(query.ranks_per_host < 1,
         fmt::format("--ranks-per-host {} is below 1", query.ranks_per_host));
  refuse(ranks.servers < 1, fmt::format("--servers {} is below 1", ranks.servers));
  refuse(query.micro_batch < 1, fmt::format("--micro-batch {} is below 1", query.micro_batch));
  refuse(ranks.hybrid_ranks < 1 || (ranks.ranks > 0 && ranks.ranks % ranks.hybrid_ranks != 0),
         fmt::format("{} cannot be cut into groups of --fsdp {}",
                     base::counted(ranks.ranks, "rank"), ranks.hybrid_ranks));
  double bytes = 0;
  for (const LayerFacts& layer : facts_of(query).layers) {
    const double of_sample = static_cast<double>(layer.kept.per_sample + layer.backward.per_sample);
    bytes += std::max(0.0, of_sample) * static_cast<double>(query.micro_batch);
  }
  refuse(bytes > kMaxRankBytes, fmt::format("--micro-batch {} keeps {:.0e} bytes, more than 10^18",
                                            query.micro_batch, bytes));
  return wrong.empty() ? Status() : base::invalid_argument(wrong);
}

}  // namespace hanji::plan
