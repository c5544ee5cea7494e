#include "hanji/schedule/bruck.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

// The runs of blocks whose number has this bit set.
std::vector<Range> runs_of(int ranks, int bit) {
  std::vector<Range> runs;
  for (int begin = bit; begin < ranks; begin += 2 * bit) {
    runs.push_back({begin, std::min(begin + bit, ranks)});
  }
  return runs;
}

// One round of an all_to_all: blocks with the bit leave by the slot's place p, arrive at place
// p + p/2, and take their places again.
void add_round(StepList& list, int bit) {
  const int ranks = list.ranks;
  const int64_t count = list.count, leave = ranks * count, arrive = (ranks + ranks / 2) * count;
  const std::vector<Range> runs = runs_of(ranks, bit);
  for (const int rank : ranks_of(list)) {
    const auto slot = [&](int64_t begin) { return Operand{rank, Place::kSlot, 0, begin}; };
    int64_t packed = 0;
    for (const Range& run : runs) {
      add_copy(list, rank, slot(run.begin * count), {slot(leave + packed)}, run.size() * count);
      packed += run.size() * count;
    }
    add_messages(list, rank,
                 {send_to((rank + bit) % ranks, slot(leave), packed),
                  receive_from((rank + ranks - bit) % ranks, slot(arrive), packed)});
    packed = 0;
    for (const Range& run : runs) {
      add_copy(list, rank, slot(arrive + packed), {slot(run.begin * count)}, run.size() * count);
      packed += run.size() * count;
    }
  }
}

}  // namespace

StepList all_gather_bruck(int ranks, int64_t count, Kept kept) {
  StepList list = open_list(Routine::kAllGather, "bruck", ranks, count);
  keep(list, kept);
  list.slot_elements = ranks * count;  // place i: the shard of rank + i
  for (const int rank : ranks_of(list)) {
    add_copy(list, rank, {rank, Place::kInput}, {{rank, Place::kSlot}}, count);
  }
  for (int distance = 1; distance < ranks; distance *= 2) {
    const int64_t size = std::min(distance, ranks - distance) * count;
    for (const int rank : ranks_of(list)) {
      add_messages(list, rank,
                   {send_to((rank + ranks - distance) % ranks, {rank, Place::kSlot}, size),
                    receive_from((rank + distance) % ranks,
                                 {rank, Place::kSlot, 0, distance * count}, size)});
    }
  }
  for (const int rank : ranks_of(list)) {
    const int64_t wrapped = rank * count, straight = ranks * count - wrapped;
    add_copy(list, rank, {rank, Place::kSlot}, {{rank, Place::kOutput, 0, wrapped}}, straight);
    add_copy(list, rank, {rank, Place::kSlot, 0, straight}, {{rank, Place::kOutput}}, wrapped);
  }
  return list;
}

StepList all_to_all_bruck(int ranks, int64_t count, Kept kept) {
  StepList list = open_list(Routine::kAllToAll, "bruck", ranks, count);
  keep(list, kept);
  list.slot_elements = (ranks + ranks / 2 * 2) * count;  // place i: the block i ranks further on
  for (const int rank : ranks_of(list)) {
    const int64_t own = rank * count, after = ranks * count - own;
    add_copy(list, rank, {rank, Place::kInput, 0, own}, {{rank, Place::kSlot}}, after);
    add_copy(list, rank, {rank, Place::kInput}, {{rank, Place::kSlot, 0, after}}, own);
  }
  for (int bit = 1; bit < ranks; bit *= 2) add_round(list, bit);
  for (const int rank : ranks_of(list)) {
    for (int i = 0; i < ranks; ++i) {
      const int from = (rank + ranks - i) % ranks;
      add_copy(list, rank, {rank, Place::kSlot, 0, i * count},
               {{rank, Place::kOutput, 0, from * count}}, count);
    }
  }
  return list;
}

StepList all_to_all_pairwise(int ranks, int64_t count, Kept kept) {
  StepList list = open_list(Routine::kAllToAll, "pairwise", ranks, count);
  keep(list, kept);
  list.in_place = false;
  for (const int rank : ranks_of(list)) {
    add_copy(list, rank, {rank, Place::kInput, 0, rank * count},
             {{rank, Place::kOutput, 0, rank * count}}, count);
    for (int round = 1; round < ranks; ++round) {
      const int next = (rank + round) % ranks, before = (rank + ranks - round) % ranks;
      add_messages(list, rank,
                   {send_to(next, {rank, Place::kInput, 0, next * count}, count),
                    receive_from(before, {rank, Place::kOutput, 0, before * count}, count)});
    }
  }
  return list;
}

}  // namespace hanji::schedule
