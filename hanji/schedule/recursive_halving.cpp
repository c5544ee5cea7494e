#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/internal/folding.h"
#include "hanji/schedule/recursive.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

// Two places of the slot, each as large as an input: what arrives, and the sum so far.
constexpr int kArrived = 0;
constexpr int kSum = 1;

/// The shards that a window of places stands for, in elements.
Range shards_of(const StepList& list, const Folding& folding, Range places) {
  return {folding.rank_at(static_cast<int>(places.begin)) * list.count,
          folding.rank_at(static_cast<int>(places.end)) * list.count};
}

Operand in_slot(const StepList& list, int rank, int half, int64_t begin) {
  return {rank, Place::kSlot, 0, half * list.ranks * list.count + begin};
}

// The last sum of a place: its own shard to the output, that of its pair to the slot.
void add_last(StepList& list, const Folding& folding, int place, Operand sum, bool own_is_lower) {
  const int rank = sum.rank;
  for (int shard = rank; shard < folding.rank_at(place + 1); ++shard) {
    const Operand own{rank, sum.place, 0, sum.begin + (shard - rank) * list.count};
    const Operand arrived = in_slot(list, rank, kArrived, shard * list.count);
    add_pair(list, rank, StepKind::kReduce,
             {own_is_lower ? own : arrived, own_is_lower ? arrived : own,
              shard == rank ? Operand{rank, Place::kOutput}
                            : in_slot(list, rank, kSum, shard * list.count),
              list.count});
  }
}

void add_round(StepList& list, const Folding& folding, int distance, std::vector<bool>& has_sum) {
  for (int place = 0; place < folding.core; ++place) {
    const int rank = folding.rank_at(place), peer = folding.rank_at(place ^ distance);
    if (!keeps(list, rank)) continue;
    const int64_t begin = place / distance * distance, other = begin ^ distance;
    const Range kept = shards_of(list, folding, {begin, begin + distance});
    const Range given = shards_of(list, folding, {other, other + distance});
    const auto sum_at = [&](int64_t at) {
      return has_sum[place] ? in_slot(list, rank, kSum, at) : Operand{rank, Place::kInput, 0, at};
    };
    const Operand arrived = in_slot(list, rank, kArrived, kept.begin), sum = sum_at(kept.begin);
    add_messages(list, rank,
                 {send_to(peer, sum_at(given.begin), given.size()),
                  receive_from(peer, arrived, kept.size())});
    if (distance == 1) {
      add_last(list, folding, place, sum, rank < peer);
      continue;
    }
    add_pair(list, rank, StepKind::kCombine,
             {rank < peer ? sum : arrived, rank < peer ? arrived : sum,
              in_slot(list, rank, kSum, kept.begin), kept.size()});
    has_sum[place] = true;
  }
}

}  // namespace

StepList reduce_scatter_recursive_halving(int ranks, int64_t count, Kept kept) {
  StepList list = open_list(Routine::kReduceScatter, "recursive_halving", ranks, count);
  keep(list, kept);
  list.keeps_order = ranks <= 3;
  if (ranks == 1) {
    add_own_reduce(list);
    return list;
  }
  const Folding folding(ranks);
  const int64_t all = ranks * count;
  list.slot_elements = 2 * all;
  std::vector<bool> has_sum(folding.core);
  for (int place = 0; place < folding.extra; ++place) {
    const int first = folding.rank_at(place), second = first + 1;
    const Operand arrived = in_slot(list, first, kArrived, 0);
    add_messages(list, second, {send_to(first, {second, Place::kInput}, all)});
    add_messages(list, first, {receive_from(second, arrived, all)});
    add_pair(list, first, StepKind::kCombine,
             {{first, Place::kInput}, arrived, in_slot(list, first, kSum, 0), all});
    has_sum[place] = true;
  }
  for (int distance = folding.core / 2; distance >= 1; distance /= 2) {
    add_round(list, folding, distance, has_sum);
  }
  for (int place = 0; place < folding.extra; ++place) {
    const int first = folding.rank_at(place), second = first + 1;
    add_messages(list, first, {send_to(second, in_slot(list, first, kSum, second * count), count)});
    add_messages(list, second, {receive_from(first, {second, Place::kOutput}, count)});
  }
  return list;
}

}  // namespace hanji::schedule
