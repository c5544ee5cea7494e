#include "hanji/schedule/reduce_scatter.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/pairwise_tree.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

void add_shard_reduce(StepList& list, int rank, std::vector<Operand> from, Range piece) {
  Step reduce;
  reduce.from = std::move(from);
  reduce.to = {{rank, Place::kOutput, 0, piece.begin}};
  reduce.count = piece.size();
  reduce.tree = pairwise_tree(list.ranks);
  add_reduce(list, rank, std::move(reduce));
}

// One chunk of every shard; the half slot at `slot` holds one piece of `room` elements per rank.
void add_staged_chunk(StepList& list, Range chunk, int64_t slot, int64_t room) {
  for (int rank = 0; rank < list.ranks; ++rank) {
    for (int owner = 0; owner < list.ranks; ++owner) {
      if (owner == rank) continue;
      add_copy(list, rank, {rank, Place::kInput, 0, owner * list.count + chunk.begin},
               {{rank, Place::kSlot, 0, slot + owner * room}}, chunk.size());
    }
  }
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    std::vector<Operand> from = of_all_ranks(list.ranks, Place::kSlot, slot + rank * room);
    from[rank] = {rank, Place::kInput, 0, rank * list.count + chunk.begin};
    add_shard_reduce(list, rank, std::move(from), chunk);
  }
}

}  // namespace

StepList reduce_scatter_flat(int ranks, int64_t count) {
  StepList list = open_list(Routine::kReduceScatter, "flat", ranks, count);
  list.slot_elements = ranks * count;
  for (int rank = 0; rank < ranks; ++rank) {
    add_copy(list, rank, {rank, Place::kInput}, {{rank, Place::kSlot}}, ranks * count);
  }
  add_sync(list);
  for (int rank = 0; rank < ranks; ++rank) {
    add_shard_reduce(list, rank, of_all_ranks(ranks, Place::kSlot, rank * count), {0, count});
  }
  return list;
}

StepList reduce_scatter_direct(int ranks, int64_t count) {
  StepList list = open_list(Routine::kReduceScatter, "direct", ranks, count);
  add_sync(list);
  for (int rank = 0; rank < ranks; ++rank) {
    add_shard_reduce(list, rank, of_all_ranks(ranks, Place::kInput, rank * count), {0, count});
  }
  add_sync(list);
  return list;
}

StepList reduce_scatter_staged(int ranks, int64_t count, int64_t chunk) {
  require(chunk >= 1, "reduce_scatter_staged needs a chunk of at least 1 element");
  StepList list = open_list(Routine::kReduceScatter, "staged", ranks, count);
  const int64_t room = std::min(chunk, count);
  const int64_t half = room * ranks;
  list.slot_elements = 2 * half;
  add_sync(list);
  int64_t slot = 0;
  for (const Range& piece : chunks_of(count, chunk)) {
    add_staged_chunk(list, piece, slot, room);
    slot = half - slot;
  }
  return list;
}

StepList reduce_scatter_exchange(int ranks, int64_t count) {
  StepList list = open_list(Routine::kReduceScatter, "exchange", ranks, count);
  list.slot_elements = ranks * count;
  add_exchange(list, [count](int rank, int peer) {
    return Exchange{{rank, Place::kInput, 0, peer * count},
                    count,
                    {rank, Place::kSlot, 0, peer * count},
                    count};
  });
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Operand> from;
    for (int i = 0; i < ranks; ++i) from.push_back({rank, Place::kSlot, 0, i * count});
    from[rank] = {rank, Place::kInput, 0, rank * count};
    add_shard_reduce(list, rank, std::move(from), {0, count});
  }
  return list;
}

}  // namespace hanji::schedule
