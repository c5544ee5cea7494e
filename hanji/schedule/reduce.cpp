#include "hanji/schedule/reduce.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

StepList open_reduce(std::string algorithm, int ranks, int64_t count, int root) {
  StepList list = open_list(Routine::kReduce, std::move(algorithm), ranks, count);
  set_root(list, root);
  return list;
}

// One chunk through the slots at `slot`, with the sync between in and out.
void add_reduce_chunk(StepList& list, Range chunk, int64_t slot) {
  const Operand own{list.root, Place::kInput, 0, chunk.begin};
  for (int rank = 0; rank < list.ranks; ++rank) {
    if (rank == list.root) continue;
    add_copy(list, rank, {rank, Place::kInput, 0, chunk.begin}, {{rank, Place::kSlot, 0, slot}},
             chunk.size());
  }
  add_sync(list);
  std::vector<Operand> from = of_all_ranks(list.ranks, Place::kSlot, slot);
  from[list.root] = own;
  add_tree_reduce(list, list.root, std::move(from), {{list.root, Place::kOutput, 0, chunk.begin}},
                  chunk.size());
}

}  // namespace

StepList reduce_flat(int ranks, int64_t count, int root) {
  StepList list = open_reduce("flat", ranks, count, root);
  list.slot_elements = count;
  add_reduce_chunk(list, {0, count}, 0);
  return list;
}

StepList reduce_direct(int ranks, int64_t count, int root) {
  StepList list = open_reduce("direct", ranks, count, root);
  add_sync(list);
  for (int rank = 0; rank < ranks; ++rank) {
    const Range slice = layout::shard_range(count, ranks, rank);
    add_tree_reduce(list, rank, of_all_ranks(ranks, Place::kInput, slice.begin),
                    {{root, Place::kOutput, 0, slice.begin}}, slice.size());
  }
  add_sync(list);
  return list;
}

StepList reduce_staged(int ranks, int64_t count, int root, int64_t chunk) {
  require(chunk >= 1, "reduce_staged needs a chunk of at least 1 element");
  StepList list = open_reduce("staged", ranks, count, root);
  const int64_t half = std::min(chunk, count);
  add_by_halves(list, half, chunks_of(count, chunk),
                [&](Range piece, int64_t slot) { add_reduce_chunk(list, piece, slot); });
  return list;
}

}  // namespace hanji::schedule
