#include "hanji/cost/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hanji/base/units.h"
#include "hanji/cost/choose_messages.h"
#include "hanji/cost/price.h"
#include "hanji/layout/shard.h"
#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/all_to_all.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/broadcast.h"
#include "hanji/schedule/gather.h"
#include "hanji/schedule/reduce.h"
#include "hanji/schedule/reduce_scatter.h"
#include "hanji/schedule/scatter.h"
#include "hanji/schedule/send.h"
#include "hanji/schedule/staging.h"

namespace hanji::cost {
namespace {

using schedule::kSlotBytes;
using schedule::Routine;
using schedule::StepList;

using Entry = std::shared_ptr<const StepList>;

// A piece that is swapped stays in a processor's own cache meanwhile.
constexpr int64_t kSwapBytes = int64_t{128} << 10;

// Elements of staging that one rank has.
int64_t room(const Query& query) { return kSlotBytes / query.element_bytes; }

// Elements of a chunk where the staging holds `pieces` of them; pieces start at vector bodies.
int64_t chunk_of(const Query& query, int pieces) {
  const int64_t chunk = room(query) / pieces;
  return std::max<int64_t>(1, chunk - chunk % layout::kAlignment);
}

StepList make_flat(const Query& query) {
  const auto& [routine, bytes, ranks, count, root, counts, in_place, dtype, in_heap] = query;
  const bool even = counts.empty();
  switch (routine) {
    case Routine::kBroadcast: return schedule::broadcast_flat(ranks, count, root);
    case Routine::kReduce: return schedule::reduce_flat(ranks, count, root);
    case Routine::kSend: return schedule::send_flat(count);
    case Routine::kAllGather:
      return even ? schedule::all_gather_flat(ranks, count) : schedule::all_gather_flat(counts);
    case Routine::kReduceScatter:
      return even ? schedule::reduce_scatter_flat(ranks, count)
                  : schedule::reduce_scatter_flat(counts);
    case Routine::kGather:
      return even ? schedule::gather_flat(ranks, count, root) : schedule::gather_flat(counts, root);
    case Routine::kScatter:
      return even ? schedule::scatter_flat(ranks, count, root)
                  : schedule::scatter_flat(counts, root);
    case Routine::kAllToAll:
      return even ? schedule::all_to_all_flat(ranks, count)
                  : schedule::all_to_all_flat(ranks, counts);
    default: return schedule::all_reduce_flat(ranks, count);
  }
}

StepList make_direct(const Query& query) {
  const auto& [routine, bytes, ranks, count, root, counts, in_place, dtype, in_heap] = query;
  const bool even = counts.empty();
  switch (routine) {
    case Routine::kBroadcast: return schedule::broadcast_direct(ranks, count, root);
    case Routine::kReduce: return schedule::reduce_direct(ranks, count, root);
    case Routine::kSend: return schedule::send_direct(count);
    case Routine::kAllGather:
      return even ? schedule::all_gather_direct(ranks, count) : schedule::all_gather_direct(counts);
    case Routine::kReduceScatter:
      return even ? schedule::reduce_scatter_direct(ranks, count)
                  : schedule::reduce_scatter_direct(counts);
    case Routine::kGather:
      return even ? schedule::gather_direct(ranks, count, root)
                  : schedule::gather_direct(counts, root);
    case Routine::kScatter:
      return even ? schedule::scatter_direct(ranks, count, root)
                  : schedule::scatter_direct(counts, root);
    case Routine::kAllToAll:
      if (in_place) return schedule::all_to_all_swap(ranks, count, kSwapBytes / bytes);
      return even ? schedule::all_to_all_direct(ranks, count)
                  : schedule::all_to_all_direct(ranks, counts);
    default: return schedule::all_reduce_direct(ranks, count);
  }
}

StepList make_staged(const Query& query) {
  const auto& [routine, bytes, ranks, count, root, counts, in_place, dtype, in_heap] = query;
  const bool even = counts.empty();
  const int64_t half = chunk_of(query, 2);
  const int64_t part = chunk_of(query, 2 * ranks);  // of one half, one for each rank
  switch (routine) {
    case Routine::kBroadcast: return schedule::broadcast_staged(ranks, count, root, half);
    case Routine::kReduce: return schedule::reduce_staged(ranks, count, root, half);
    case Routine::kSend: return schedule::send_staged(count, half);
    case Routine::kAllGather:
      return even ? schedule::all_gather_staged(ranks, count, half)
                  : schedule::all_gather_staged(counts, half);
    case Routine::kReduceScatter:
      return even ? schedule::reduce_scatter_staged(ranks, count, part)
                  : schedule::reduce_scatter_staged(counts, part);
    case Routine::kGather:
      return even ? schedule::gather_staged(ranks, count, root, half)
                  : schedule::gather_staged(counts, root, half);
    case Routine::kScatter:
      return even ? schedule::scatter_staged(ranks, count, root, part)
                  : schedule::scatter_staged(counts, root, part);
    case Routine::kAllToAll:
      return even ? schedule::all_to_all_staged(ranks, count, part)
                  : schedule::all_to_all_staged(ranks, counts, part);
    default: return schedule::all_reduce_staged(ranks, count, half);
  }
}

// What one rank has, or, of an uneven call, all ranks have.
std::string amount(const Query& query) {
  const std::string bytes = base::format_bytes(query.count * query.element_bytes);
  return query.counts.empty() ? bytes + " per rank" : bytes + " in uneven shares";
}

std::string sentence(const Query& query, const std::vector<Candidate>& candidates) {
  std::string text =
      fmt::format("{} of {} over {}: {} at {}", name_of(query.routine), amount(query),
                  base::counted(query.ranks, "rank"), candidates[0].list->algorithm,
                  base::format_seconds(candidates[0].seconds));
  if (candidates.size() == 1) return text + " is the only algorithm";
  return text + fmt::format(" beats {} at {}", candidates[1].list->algorithm,
                            base::format_seconds(candidates[1].seconds));
}

void refuse_tree_reduce(const Query& query) {
  if (query.routine != Routine::kTreeReduce) return;
  throw Error(base::invalid_argument(
      "a tree_reduce is not chosen by price; its list comes from schedule::tree_all_reduce()"));
}

// Moves the named algorithm to the front.
void prefer(std::string_view name, const Query& query, std::vector<Candidate>& candidates) {
  const auto found = std::ranges::find_if(
      candidates, [&](const Candidate& one) { return one.list->algorithm == name; });
  if (found == candidates.end()) {
    throw Error(base::invalid_argument(fmt::format(
        "{} of {} over {} ranks cannot be carried out by {}, which was named for it; its slots "
        "hold {}; name staged, or nothing",
        name_of(query.routine), amount(query), query.ranks, name, base::format_bytes(kSlotBytes))));
  }
  std::rotate(candidates.begin(), found, found + 1);
}

// A sender posts the direct list whole before its receiver comes, and others in steps with it. What
// fits into a flag line is posted at once by any.
bool receiver_ends_it_alone(const Query& query) {
  constexpr int64_t kLineBytes = 32;
  return query.routine == Routine::kSend && query.count * query.element_bytes > kLineBytes;
}

// Of lists that begin with a sync and touch no tensor of a peer.
Entry cheapest_after_meeting(const Query& query, const Rates& rates) {
  const Element element(static_cast<size_t>(query.element_bytes), query.dtype, false);
  StepList staged = make_staged(query);
  StepList flat = schedule::meet_first(make_flat(query));
  const bool fits = flat.slot_elements <= room(query);
  const bool is_flat =
      fits && price_seconds(flat, element, rates) < price_seconds(staged, element, rates);
  return std::make_shared<const StepList>(std::move(is_flat ? flat : staged));
}

Selection choose(const Query& query, const Rates& rates, std::string_view named) {
  std::vector<Candidate> candidates = candidates_for(query, rates);
  const auto names = algorithm_names(query.routine, Medium::kMemory);
  const bool is_named = std::ranges::find(names, named) != names.end();
  const bool alone = !is_named && receiver_ends_it_alone(query);
  if (is_named || alone) prefer(alone ? "direct" : named, query, candidates);
  Selection selection;
  selection.in_heap = selection.if_private = candidates[0].list;
  if (touches_peer_tensors(*selection.in_heap)) {
    selection.if_private = cheapest_after_meeting(query, rates);
  }
  selection.predicted_seconds = candidates[0].seconds;
  selection.why =
      alone      ? fmt::format("send of {}: direct, which the receiver ends alone", amount(query))
      : is_named ? fmt::format("{} was named for {}", named, name_of(query.routine))
                 : sentence(query, candidates);
  return selection;
}

}  // namespace

std::vector<Candidate> candidates_for(const Query& query, const Rates& rates) {
  refuse_tree_reduce(query);
  std::vector<Candidate> candidates;
  const Element element(static_cast<size_t>(query.element_bytes), query.dtype, query.in_heap);
  const auto add = [&](StepList list) {
    const double seconds = price_seconds(list, element, rates);
    candidates.push_back({std::make_shared<const StepList>(std::move(list)), seconds});
  };
  if (query.routine == Routine::kBarrier) {
    add(schedule::barrier(query.ranks));
    return candidates;
  }
  add(make_direct(query));
  add(make_staged(query));
  StepList flat = make_flat(query);
  if (flat.slot_elements <= room(query)) add(std::move(flat));
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
  return candidates;
}

// Two generations: a call found in the old one moves to the young one; when that is full the old
// one is dropped. So an entry outlives at least kKept other selections after its last use.
struct Chooser::Cache {
  struct Hash {
    size_t operator()(const Query& query) const {
      uint64_t hash = static_cast<uint64_t>(query.routine) | (query.in_place ? 256 : 0) |
                      (query.in_heap ? 512 : 0);
      const auto add = [&hash](int64_t value) {
        hash = (hash ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 32;
      };
      for (const int64_t value :
           {query.element_bytes, int64_t{query.ranks}, query.count, int64_t{query.root},
            query.dtype ? static_cast<int64_t>(*query.dtype) : -1}) {
        add(value);
      }
      for (const int64_t count : query.counts) add(count);
      return hash;
    }
  };
  using Map = std::unordered_map<Query, std::shared_ptr<const Selection>, Hash>;

  std::shared_ptr<const Selection> find(const Query& key) {
    if (const auto found = young.find(key); found != young.end()) return found->second;
    const auto found = old.find(key);
    return found == old.end() ? nullptr : insert(key, found->second);
  }

  std::shared_ptr<const Selection> insert(const Query& key,
                                          std::shared_ptr<const Selection> value) {
    if (young.size() >= kKept) old = std::exchange(young, {});
    return young.emplace(key, std::move(value)).first->second;
  }

  std::mutex mutex;
  Map young;
  Map old;
};

Chooser::Chooser(Rates rates, NamedAlgorithms named)
    : rates_(std::move(rates)),
      named_(std::move(named)),
      cache_(std::make_unique<Cache>()),
      messages_(make_message_table()) {}

std::string_view Chooser::named(Routine routine) const {
  const auto found = named_.find(routine);
  return found == named_.end() ? std::string_view() : found->second;
}

Chooser::~Chooser() = default;

const Selection& Chooser::select(Routine routine, schedule::ReduceOp, DType dtype, int ranks,
                                 int64_t count, int root) {
  return select({.routine = routine,
                 .element_bytes = static_cast<int64_t>(size_of(dtype)),
                 .ranks = ranks,
                 .count = count,
                 .root = root,
                 .dtype = kFittedTypes[fitted_type(dtype)]});  // types of one rate share lists
}

const Selection& Chooser::select(const Query& query) {
  refuse_tree_reduce(query);
  const std::lock_guard lock(cache_->mutex);
  std::shared_ptr<const Selection> found = cache_->find(query);
  if (!found) {
    found = cache_->insert(
        query, std::make_shared<const Selection>(choose(query, rates_, named(query.routine))));
  }
  return *found;
}

}  // namespace hanji::cost
