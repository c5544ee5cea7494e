#include "hanji/schedule/all_gather.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

// One chunk of every rank's input through its slot at `slot`.
void add_chunk(StepList& list, Range chunk, int64_t slot) {
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_copy(list, rank, {rank, Place::kInput, 0, chunk.begin}, {{rank, Place::kSlot, 0, slot}},
             chunk.size());
  }
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    for (int i = 0; i < list.ranks; ++i) {  // start with oneself: ranks read from different ones
      const int owner = (rank + i) % list.ranks;
      add_copy(list, rank, {owner, Place::kSlot, 0, slot},
               {{rank, Place::kOutput, 0, owner * list.count + chunk.begin}}, chunk.size());
    }
  }
}

}  // namespace

StepList all_gather_flat(int ranks, int64_t count) {
  StepList list = open_list(Routine::kAllGather, "flat", ranks, count);
  list.slot_elements = count;
  add_chunk(list, {0, count}, 0);
  return list;
}

StepList all_gather_direct(int ranks, int64_t count) {
  StepList list = open_list(Routine::kAllGather, "direct", ranks, count);
  add_sync(list);
  for (int rank = 0; rank < ranks; ++rank) {
    add_copy(list, rank, {rank, Place::kInput}, of_all_ranks(ranks, Place::kOutput, rank * count),
             count);
  }
  add_sync(list);
  return list;
}

StepList all_gather_staged(int ranks, int64_t count, int64_t chunk) {
  require(chunk >= 1, "all_gather_staged needs a chunk of at least 1 element");
  StepList list = open_list(Routine::kAllGather, "staged", ranks, count);
  const int64_t half = std::min(chunk, count);
  list.slot_elements = 2 * half;
  add_sync(list);
  int64_t slot = 0;
  for (const Range& piece : chunks_of(count, chunk)) {
    add_chunk(list, piece, slot);
    slot = half - slot;
  }
  return list;
}

}  // namespace hanji::schedule
