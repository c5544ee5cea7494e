#include "hanji/schedule/recursive.h"

#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/internal/folding.h"
#include "hanji/schedule/pairwise_tree.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

// Where a rank of an all_reduce holds its sum: nothing is added to the input yet, or the output.
Operand sum_of(const StepList& list, int rank, int64_t begin) {
  const auto& steps = list.per_rank[rank];
  const bool has_sum = !steps.empty() && steps.back().kind == StepKind::kCombine;
  return {rank, has_sum ? Place::kOutput : Place::kInput, 0, begin};
}

// The second of every pair gives its part to the first.
void fold(StepList& list, const Folding& folding) {
  for (int i = 0; i < folding.extra; ++i) {
    const int first = folding.rank_at(i), second = first + 1;
    add_messages(list, second, {send_to(first, {second, Place::kInput}, list.count)});
    add_messages(list, first, {receive_from(second, {first, Place::kSlot}, list.count)});
    add_pair(list, first, StepKind::kCombine,
             {{first, Place::kInput}, {first, Place::kSlot}, {first, Place::kOutput}, list.count});
  }
}

// The first of every pair gives the result to the second.
void unfold(StepList& list, const Folding& folding) {
  for (int i = 0; i < folding.extra; ++i) {
    const int first = folding.rank_at(i), second = first + 1;
    add_messages(list, first, {send_to(second, {first, Place::kOutput}, list.count)});
    add_messages(list, second, {receive_from(first, {second, Place::kOutput}, list.count)});
  }
}

// Adds `count` elements that have arrived in the slot to the sum from `begin`, the lower place left.
void add_arrived(StepList& list, Operand sum, int64_t count, bool own_is_lower, StepKind kind) {
  const Operand slot{sum.rank, Place::kSlot};
  add_pair(list, sum.rank, kind,
           {own_is_lower ? sum : slot,
            own_is_lower ? slot : sum,
            {sum.rank, Place::kOutput, 0, sum.begin},
            count});
}

// The places whose slices a place still reduces before it exchanges with the one `distance` away.
Range window_of(int place, int distance, int core) {
  Range window{0, core};
  for (int bit = 1; bit < distance; bit *= 2) {
    const int64_t middle = window.begin + window.size() / 2;
    (place & bit ? window.begin : window.end) = middle;
  }
  return window;
}

/// What a place keeps and what it gives in an exchange, in elements.
struct Halves {
  Range kept, given;
};

Halves halve(Range window, bool keeps_upper, int64_t count, int core) {
  const int64_t middle = window.begin + window.size() / 2;
  const auto start = [&](int64_t place) {
    return place == core ? count : slice_of(count, core, static_cast<int>(place)).begin;
  };
  const Range lower{start(window.begin), start(middle)}, upper{start(middle), start(window.end)};
  return keeps_upper ? Halves{upper, lower} : Halves{lower, upper};
}

}  // namespace

StepList all_reduce_recursive_doubling(int ranks, int64_t count, Kept kept) {
  StepList list = open_list(Routine::kAllReduce, "recursive_doubling", ranks, count);
  keep(list, kept);
  if (ranks == 1) {
    add_own_reduce(list);
    return list;
  }
  const Folding folding(ranks);
  list.keeps_order = folding.tree() == pairwise_tree(ranks);
  list.slot_elements = count;
  fold(list, folding);
  for (int distance = 1; distance < folding.core; distance *= 2) {
    const bool is_last = 2 * distance == folding.core;
    for (int place = 0; place < folding.core; ++place) {
      const int rank = folding.rank_at(place), peer = folding.rank_at(place ^ distance);
      if (!keeps(list, rank)) continue;
      const Operand sum = sum_of(list, rank, 0);
      add_messages(list, rank,
                   {send_to(peer, sum, count), receive_from(peer, {rank, Place::kSlot}, count)});
      add_arrived(list, sum, count, rank < peer, is_last ? StepKind::kReduce : StepKind::kCombine);
    }
  }
  unfold(list, folding);
  return list;
}

StepList all_reduce_rabenseifner(int ranks, int64_t count, Kept kept) {
  StepList list = open_list(Routine::kAllReduce, "rabenseifner", ranks, count);
  keep(list, kept);
  if (ranks == 1) {
    add_own_reduce(list);
    return list;
  }
  const Folding folding(ranks);
  const int core = folding.core;
  list.keeps_order = folding.tree() == pairwise_tree(ranks);
  list.slot_elements = folding.extra > 0 ? count : slice_of(count, core, core / 2).begin;
  fold(list, folding);
  const auto halves = [&](int place, int distance) {
    return halve(window_of(place, distance, core), place & distance, count, core);
  };
  std::vector<Place> held(core, Place::kInput);  // where each place's sum is
  for (int place = 0; place < folding.extra; ++place) held[place] = Place::kOutput;
  for (int distance = 1; distance < core; distance *= 2) {
    const StepKind kind = 2 * distance == core ? StepKind::kReduce : StepKind::kCombine;
    for (int place = 0; place < core; ++place) {
      const int rank = folding.rank_at(place), peer = folding.rank_at(place ^ distance);
      if (!keeps(list, rank)) continue;
      const auto [kept, given] = halves(place, distance);
      add_messages(list, rank,
                   {send_to(peer, {rank, held[place], 0, given.begin}, given.size()),
                    receive_from(peer, {rank, Place::kSlot}, kept.size())});
      add_arrived(list, {rank, held[place], 0, kept.begin}, kept.size(), rank < peer, kind);
      held[place] = Place::kOutput;
    }
  }
  for (int distance = core / 2; distance >= 1; distance /= 2) {
    for (int place = 0; place < core; ++place) {
      const int rank = folding.rank_at(place), peer = folding.rank_at(place ^ distance);
      if (!keeps(list, rank)) continue;
      const auto [kept, given] = halves(place, distance);
      add_messages(list, rank,
                   {send_to(peer, {rank, Place::kOutput, 0, kept.begin}, kept.size()),
                    receive_from(peer, {rank, Place::kOutput, 0, given.begin}, given.size())});
    }
  }
  unfold(list, folding);
  return list;
}

}  // namespace hanji::schedule
