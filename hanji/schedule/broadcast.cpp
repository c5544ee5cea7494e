#include "hanji/schedule/broadcast.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

// One chunk through the root's slot at `slot`, with the sync between in and out.
void add_broadcast_chunk(StepList& list, Range chunk, int64_t slot) {
  const int root = list.root;
  const Operand source{root, Place::kInput, 0, chunk.begin};
  add_copy(list, root, source,
           {{root, Place::kSlot, 0, slot}, {root, Place::kOutput, 0, chunk.begin}}, chunk.size());
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    if (rank == root) continue;
    add_copy(list, rank, {root, Place::kSlot, 0, slot}, {{rank, Place::kOutput, 0, chunk.begin}},
             chunk.size());
  }
}

}  // namespace

StepList broadcast_flat(int ranks, int64_t count, int root) {
  StepList list = open_broadcast("flat", ranks, count, root);
  list.slot_elements = count;
  add_broadcast_chunk(list, {0, count}, 0);
  return list;
}

StepList broadcast_direct(int ranks, int64_t count, int root) {
  StepList list = open_broadcast("direct", ranks, count, root);
  add_sync(list);
  for (int rank = 0; rank < ranks; ++rank) {
    const Range slice = layout::shard_range(count, ranks, rank);
    add_copy(list, rank, {root, Place::kInput, 0, slice.begin},
             of_all_ranks(ranks, Place::kOutput, slice.begin), slice.size());
  }
  add_sync(list);
  return list;
}

StepList broadcast_staged(int ranks, int64_t count, int root, int64_t chunk) {
  require(chunk >= 1, "broadcast_staged needs a chunk of at least 1 element");
  StepList list = open_broadcast("staged", ranks, count, root);
  const int64_t half = std::min(chunk, count);
  add_by_halves(list, half, chunks_of(count, chunk),
                [&](Range piece, int64_t slot) { add_broadcast_chunk(list, piece, slot); });
  return list;
}

}  // namespace hanji::schedule
