#include "hanji/plan/cheapest_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "hanji/base/limits.h"
#include "hanji/base/units.h"

namespace hanji::plan {
namespace {

using base::counted;

int devices(const CapacityQuery& query, Sharding sharding) {
  if (query.device.shares_host) return query.hosts();
  return query.ranks.ranks + (sharding == Sharding::kServer ? query.ranks.servers : 0);
}

double sent(const CapacityQuery& query, Sharding sharding) {
  return sent_bytes(sharding, static_cast<double>(query.model.num_parameters), query.widths,
                    query.ranks);
}

/// In the order of cheapest_changes(): fewer devices, less computing, fewer bytes, larger batches.
auto price_of(const Change& change) {
  return std::tuple(devices(change.query, change.sharding), change.query.recompute,
                    sent(change.query, change.sharding), -change.query.micro_batch);
}

std::string describe(const CapacityQuery& before, const Change& change) {
  std::string words = fmt::format("{} with {}", counted(change.query.ranks.ranks, "rank"),
                                  name_of(change.sharding));
  if (change.sharding == Sharding::kHybrid) {
    words += fmt::format(" over groups of {}", change.query.ranks.hybrid_ranks);
  }
  if (change.sharding == Sharding::kServer) {
    words += fmt::format(" and {}", counted(change.query.ranks.servers, "server"));
  }
  if (change.query.device.name != before.device.name) words += " on " + change.query.device.name;
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
  const int64_t memory = change.query.device.memory_bytes;
  if (memory > before.device.memory_bytes) {
    add(fmt::format("devices of {:.0f} GB", static_cast<double>(memory) / 1e9));
  }
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
  const ShardRanks& ranks = change.query.ranks;
  return change.sharding != Sharding::kHybrid ||
         (ranks.ranks > ranks.hybrid_ranks && ranks.ranks % ranks.hybrid_ranks == 0);
}

/// Within a host twice as many, then whole hosts: one more, or of many an eighth.
int more_ranks(int ranks, int per_host) {
  if (ranks < per_host) return std::min(2 * ranks, per_host);
  const int hosts = ranks / per_host;
  return (hosts + std::max(1, hosts / 8)) * per_host;
}

/// With so few ranks as fit, the cheapest micro-batch; nothing where none do.
std::optional<Change> first_that_fits(const CapacityQuery& query, Sharding sharding,
                                      bool recompute) {
  for (int ranks = query.ranks.ranks; ranks <= base::kMaxRanks;
       ranks = more_ranks(ranks, query.ranks_per_host)) {
    for (int64_t samples = query.micro_batch; samples >= 1; samples /= 2) {
      Change change{with_ranks(query, ranks), sharding, "", ""};
      change.query.recompute = recompute;
      change.query.micro_batch = samples;
      if (is_another(change) && capacity_of(change.query, sharding).fits) return change;
    }
  }
  return std::nullopt;
}

/// With this strategy, cheapest first: as blocks are computed, and computed twice.
std::vector<Change> that_fit(const CapacityQuery& query, Sharding sharding) {
  std::vector<Change> found;
  if (const auto as_is = first_that_fits(query, sharding, query.recompute)) {
    found.push_back(*as_is);
  }
  if (!query.recompute) {
    const auto twice = first_that_fits(query, sharding, true);
    const bool saves = twice && (found.empty() || price_of(*twice) < price_of(found[0]));
    if (saves) found.insert(found.begin(), *twice);
  }
  return found;
}

/// On the smallest device that is larger, with as many ranks.
std::optional<Change> on_larger_devices(const CapacityQuery& query) {
  std::vector<DeviceSpec> larger;
  for (const DeviceSpec& device : known_devices()) {
    const bool helps = device.memory_bytes > query.device.memory_bytes && !device.shares_host;
    if (helps && !query.device.shares_host) larger.push_back(device);
  }
  std::ranges::stable_sort(larger, {}, &DeviceSpec::memory_bytes);
  for (const DeviceSpec& device : larger) {
    for (const Sharding sharding : kShardings) {
      Change change{query, sharding, "", ""};
      change.query.device = device;
      if (is_another(change) && capacity_of(change.query, sharding).fits) return change;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Change> cheapest_changes(const CapacityQuery& query, size_t most) {
  std::vector<Change> changes, others;
  for (const Sharding sharding : kShardings) {
    const auto found = that_fit(query, sharding);
    for (const Change& change : found) (&change == &found[0] ? changes : others).push_back(change);
  }
  std::ranges::stable_sort(changes, {}, price_of);
  std::ranges::stable_sort(others, {}, price_of);
  changes.insert(changes.end(), others.begin(), others.end());
  changes.resize(std::min(changes.size(), most));
  std::ranges::stable_sort(changes, {}, price_of);
  const auto larger = on_larger_devices(query);
  if (larger && changes.size() < most) changes.push_back(*larger);
  for (Change& change : changes) {
    change.words = describe(query, change);
    change.price = price_in_words(query, change);
  }
  return changes;
}

}  // namespace hanji::plan
