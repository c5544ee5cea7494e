#include "hanji/plan/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace hanji::plan {
namespace {

constexpr int kMostRanks = 65536;
constexpr int64_t kUnitsInFlight = 2;

int64_t whole(double bytes) { return std::llround(bytes); }

/// Parameters of the two largest neighbours among the units embeddings, blocks and head.
double parameters_in_flight(const ModelSpec& m) {
  const double c = static_cast<double>(m.width);
  const double block = 12 * c * c + 13 * c;
  const double embeddings = static_cast<double>(m.vocabulary + m.block) * c;
  const double other = m.layers > 1 ? block : 0;
  return std::max(embeddings, other) + block;
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
  /// Parameters lie once in the memory of a host, whoever updates which of them.
  bool once_per_host() const {
    return query_.device.shares_host && sharding_ != Sharding::kReplicas &&
           sharding_ != Sharding::kServer;
  }

  double in_flight() const {
    return std::min(parameters(), parameters_in_flight(query_.model.spec));
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

  int64_t activations() const {
    const ActivationOptions options{query_.micro_batch, query_.precision,
                                    query_.device.shares_host ? Device::kCpu : Device::kCuda,
                                    query_.recompute};
    const ModelSpec& spec = query_.model.spec;
    return activation_bytes(spec, options) + workspace_bytes(spec, options);
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
                 bucket_bytes(), unsharded_bytes(), query_.hosts() > 1 ? query_.bucket_bytes : 0);
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

std::string counted(int64_t count, const char* word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

int devices(const CapacityQuery& query, Sharding sharding) {
  if (query.device.shares_host) return query.hosts();
  return query.ranks.ranks + (sharding == Sharding::kServer ? query.ranks.servers : 0);
}

double sent(const CapacityQuery& query, Sharding sharding) {
  return sent_bytes(sharding, static_cast<double>(query.model.num_parameters), query.widths,
                    query.ranks);
}

/// As describe() of Change says it: fewer devices, less computing, fewer bytes, larger batches.
auto price_of(const Change& change) {
  return std::tuple(devices(change.query, change.sharding), change.query.recompute,
                    sent(change.query, change.sharding), -change.query.micro_batch);
}

std::string words_of(const CapacityQuery& before, const Change& change) {
  std::string words = fmt::format("{} with {}", counted(change.query.ranks.ranks, "rank"),
                                  name_of(change.sharding));
  if (change.sharding == Sharding::kHybrid) {
    words += fmt::format(" over groups of {}", change.query.ranks.hybrid_ranks);
  }
  if (change.sharding == Sharding::kServer) {
    words += fmt::format(" and {}", counted(change.query.ranks.servers, "server"));
  }
  if (change.query.recompute && !before.recompute) words += ", recompute";
  if (change.query.micro_batch != before.micro_batch) {
    words += fmt::format(", micro_batch {}", change.query.micro_batch);
  }
  return words;
}

std::string price_in_words(const CapacityQuery& before, const Change& change) {
  std::string words;
  const auto add = [&](const std::string& more) { words += (words.empty() ? "" : "; ") + more; };
  const int more = devices(change.query, change.sharding) - devices(before, Sharding::kReplicas);
  if (more > 0) add(counted(more, before.device.shares_host ? "host" : "device") + " more");
  if (change.query.recompute && !before.recompute) add("every block computed twice");
  const double bytes = sent(change.query, change.sharding);
  if (bytes > 0) add(fmt::format("{:.1f} GB sent a step by each rank", bytes / 1e9));
  if (change.query.micro_batch < before.micro_batch) add("smaller products");
  return words.empty() ? "nothing" : words;
}

/// The query with other ranks; a group of hsdp is a host's ranks.
CapacityQuery with_ranks(CapacityQuery query, int ranks) {
  query.ranks.ranks = ranks;
  query.ranks.hybrid_ranks = std::min(ranks, query.ranks_per_host);
  return query;
}

/// One group of all ranks is zero3.
bool is_another(const Change& change) {
  return change.sharding != Sharding::kHybrid ||
         change.query.ranks.ranks > change.query.ranks.hybrid_ranks;
}

/// What fits with this strategy, cheapest first.
std::vector<Change> that_fit(const CapacityQuery& query, Sharding sharding) {
  std::vector<Change> found;
  for (int ranks = query.ranks.ranks; ranks <= kMostRanks && found.empty(); ranks *= 2) {
    for (const bool recompute : {query.recompute, true}) {
      for (int64_t samples = query.micro_batch; samples >= 1; samples /= 2) {
        Change change{with_ranks(query, ranks), sharding, "", ""};
        change.query.recompute = recompute;
        change.query.micro_batch = samples;
        if (is_another(change) && capacity_of(change.query, sharding).fits) found.push_back(change);
      }
    }
  }
  std::ranges::sort(found, {}, price_of);
  return found;
}

}  // namespace

Capacity capacity_of(const CapacityQuery& query, Sharding sharding) {
  return Counter(query, sharding).count();
}

std::vector<Change> cheapest_changes(const CapacityQuery& query, size_t most) {
  std::vector<Change> changes;
  for (const Sharding sharding : kShardings) {
    auto found = that_fit(query, sharding);
    if (!found.empty()) changes.push_back(std::move(found.front()));
  }
  std::ranges::stable_sort(changes, {}, price_of);
  if (changes.size() > most)
    changes.erase(changes.begin() + static_cast<int64_t>(most), changes.end());
  for (Change& change : changes) {
    change.words = words_of(query, change);
    change.price = price_in_words(query, change);
  }
  return changes;
}

Status check(const CapacityQuery& query) {
  std::string wrong;
  const auto refuse = [&](bool is_wrong, const std::string& words) {
    if (is_wrong) wrong += (wrong.empty() ? "" : "; ") + words;
  };
  const ShardRanks& ranks = query.ranks;
  refuse(ranks.ranks < 1 || ranks.ranks > kMostRanks,
         fmt::format("--ranks {} is not in 1..{}", ranks.ranks, kMostRanks));
  refuse(query.ranks_per_host < 1,
         fmt::format("--ranks-per-host {} is below 1", query.ranks_per_host));
  refuse(ranks.servers < 1, fmt::format("--servers {} is below 1", ranks.servers));
  refuse(query.micro_batch < 1, fmt::format("--micro-batch {} is below 1", query.micro_batch));
  refuse(ranks.hybrid_ranks < 1 || (ranks.ranks > 0 && ranks.ranks % ranks.hybrid_ranks != 0),
         fmt::format("{} ranks cannot be cut into groups of --fsdp {}", ranks.ranks,
                     ranks.hybrid_ranks));
  refuse(query.model.spec.block < 1, fmt::format("--block {} is below 1", query.model.spec.block));
  return wrong.empty() ? Status() : base::invalid_argument(wrong);
}

}  // namespace hanji::plan
