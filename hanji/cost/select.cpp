#include "hanji/cost/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hanji/base/units.h"
#include "hanji/cost/price.h"
#include "hanji/layout/shard.h"
#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/broadcast.h"
#include "hanji/schedule/reduce_scatter.h"

namespace hanji::cost {
namespace {

using schedule::kStagingBytes;
using schedule::Routine;
using schedule::StepList;

// What distinguishes two calls for the choice: the dtype only by its size, the op not at all.
struct Key {
  Routine routine;
  int64_t element_bytes;
  int ranks;
  int64_t count;
  int root;

  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = static_cast<uint64_t>(key.routine);
    for (const int64_t value :
         {key.element_bytes, int64_t{key.ranks}, key.count, int64_t{key.root}}) {
      hash = (hash ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

using Entry = std::shared_ptr<const StepList>;

struct Priced {
  Entry list;
  double seconds = 0;
};

// Elements of staging that one rank has.
int64_t room(const Key& key) { return kStagingBytes / key.element_bytes; }

// Elements of a chunk where the staging holds `pieces` of them; pieces start at vector bodies.
int64_t chunk_of(const Key& key, int pieces) {
  const int64_t chunk = room(key) / pieces;
  return std::max<int64_t>(1, chunk - chunk % layout::kAlignment);
}

// Elements that flat puts into one slot.
int64_t flat_elements(const Key& key) {
  return key.routine == Routine::kReduceScatter ? key.count * key.ranks : key.count;
}

StepList make_flat(const Key& key) {
  switch (key.routine) {
    case Routine::kBroadcast: return schedule::broadcast_flat(key.ranks, key.count, key.root);
    case Routine::kAllGather: return schedule::all_gather_flat(key.ranks, key.count);
    case Routine::kReduceScatter: return schedule::reduce_scatter_flat(key.ranks, key.count);
    default: return schedule::all_reduce_flat(key.ranks, key.count);
  }
}

StepList make_direct(const Key& key) {
  switch (key.routine) {
    case Routine::kBroadcast: return schedule::broadcast_direct(key.ranks, key.count, key.root);
    case Routine::kAllGather: return schedule::all_gather_direct(key.ranks, key.count);
    case Routine::kReduceScatter: return schedule::reduce_scatter_direct(key.ranks, key.count);
    default: return schedule::all_reduce_direct(key.ranks, key.count);
  }
}

StepList make_staged(const Key& key) {
  const auto [routine, bytes, ranks, count, root] = key;
  switch (routine) {
    case Routine::kBroadcast:
      return schedule::broadcast_staged(ranks, count, root, chunk_of(key, 2));
    case Routine::kAllGather: return schedule::all_gather_staged(ranks, count, chunk_of(key, 2));
    case Routine::kReduceScatter:
      return schedule::reduce_scatter_staged(ranks, count, chunk_of(key, 2 * ranks));
    default: return schedule::all_reduce_staged(ranks, count, chunk_of(key, 1));
  }
}

std::string sentence(const Key& key, const std::vector<Priced>& candidates) {
  std::string text =
      fmt::format("{} of {} per rank over {} ranks: {} at {}", name_of(key.routine),
                  base::format_bytes(key.count * key.element_bytes), key.ranks,
                  candidates[0].list->algorithm, base::format_seconds(candidates[0].seconds));
  if (candidates.size() == 1) return text + " is the only algorithm";
  return text + fmt::format(" beats {} at {}", candidates[1].list->algorithm,
                            base::format_seconds(candidates[1].seconds));
}

Selection choose(const Key& key, const Rates& rates) {
  std::vector<Priced> candidates;
  const auto add = [&](StepList list) {
    const double seconds = price_seconds(list, key.element_bytes, rates);
    candidates.push_back({std::make_shared<const StepList>(std::move(list)), seconds});
    return candidates.back().list;
  };
  Entry staged;
  if (key.routine == Routine::kBarrier) {
    add(schedule::barrier(key.ranks));
  } else {
    add(make_direct(key));
    staged = add(make_staged(key));
    if (flat_elements(key) <= room(key)) add(make_flat(key));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Priced& a, const Priced& b) { return a.seconds < b.seconds; });
  Selection selection;
  selection.in_heap = candidates[0].list;
  selection.if_private =
      touches_peer_tensors(*selection.in_heap) && staged ? staged : selection.in_heap;
  selection.predicted_seconds = candidates[0].seconds;
  selection.why = sentence(key, candidates);
  return selection;
}

}  // namespace

// Two generations: a call found in the old one moves to the young one; when that is full the old
// one is dropped. So an entry outlives at least kKept other selections after its last use.
struct Chooser::Cache {
  using Map = std::unordered_map<Key, std::shared_ptr<const Selection>, KeyHash>;

  std::shared_ptr<const Selection> find(const Key& key) {
    if (const auto found = young.find(key); found != young.end()) return found->second;
    const auto found = old.find(key);
    return found == old.end() ? nullptr : insert(key, found->second);
  }

  std::shared_ptr<const Selection> insert(const Key& key, std::shared_ptr<const Selection> value) {
    if (young.size() >= kKept) old = std::exchange(young, {});
    return young.emplace(key, std::move(value)).first->second;
  }

  std::mutex mutex;
  Map young;
  Map old;
};

Chooser::Chooser(Rates rates) : rates_(rates), cache_(std::make_unique<Cache>()) {}
Chooser::~Chooser() = default;

const Selection& Chooser::select(Routine routine, schedule::ReduceOp, DType dtype, int ranks,
                                 int64_t count, int root) {
  if (routine == Routine::kTreeReduce) {
    throw Error(base::invalid_argument(
        "a tree_reduce is not chosen by price; its list comes from schedule::tree_all_reduce()"));
  }
  const Key key{routine, static_cast<int64_t>(size_of(dtype)), ranks, count, root};
  const std::lock_guard lock(cache_->mutex);
  std::shared_ptr<const Selection> found = cache_->find(key);
  if (!found) {
    found = cache_->insert(key, std::make_shared<const Selection>(choose(key, rates_)));
  }
  return *found;
}

}  // namespace hanji::cost
