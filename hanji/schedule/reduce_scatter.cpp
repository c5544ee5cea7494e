#include "hanji/schedule/reduce_scatter.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

void add_shard_reduce(StepList& list, int rank, std::vector<Operand> from, Range piece) {
  add_tree_reduce(list, rank, std::move(from), {{rank, Place::kOutput, 0, piece.begin}},
                  piece.size());
}

template <class... Shares>
StepList open_reduce_scatter(std::string algorithm, const Shares&... shares) {
  return open_list(Routine::kReduceScatter, std::move(algorithm), shares...);
}

std::vector<Range> reduced_blocks(const StepList& list) {
  return blocks_of(list, 0, Place::kInput);
}

// One chunk of every shard; the half slot at `slot` holds one piece of `room` elements per rank.
void add_staged_chunk(StepList& list, const std::vector<Range>& blocks, Range chunk, int64_t slot,
                      int64_t room) {
  for (int rank = 0; rank < list.ranks; ++rank) {
    for (int owner = 0; owner < list.ranks; ++owner) {
      if (owner == rank) continue;
      const Range piece = piece_of(blocks[owner], chunk);
      add_copy(list, rank, {rank, Place::kInput, 0, piece.begin},
               {{rank, Place::kSlot, 0, slot + owner * room}}, piece.size());
    }
  }
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    const Range piece = piece_of(blocks[rank], chunk);
    std::vector<Operand> from = of_all_ranks(list.ranks, Place::kSlot, slot + rank * room);
    from[rank] = {rank, Place::kInput, 0, piece.begin};
    add_shard_reduce(list, rank, std::move(from), {chunk.begin, chunk.begin + piece.size()});
  }
}

StepList flat_reduce_scatter(StepList list) {
  const std::vector<Range> blocks = reduced_blocks(list);
  const int64_t all = blocks.back().end;
  list.slot_elements = all;
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_copy(list, rank, {rank, Place::kInput}, {{rank, Place::kSlot}}, all);
  }
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_shard_reduce(list, rank, of_all_ranks(list.ranks, Place::kSlot, blocks[rank].begin),
                     {0, blocks[rank].size()});
  }
  return list;
}

StepList direct_reduce_scatter(StepList list) {
  const std::vector<Range> blocks = reduced_blocks(list);
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_shard_reduce(list, rank, of_all_ranks(list.ranks, Place::kInput, blocks[rank].begin),
                     {0, blocks[rank].size()});
  }
  add_sync(list);
  return list;
}

StepList staged_reduce_scatter(StepList list, int64_t chunk) {
  require(chunk >= 1, "reduce_scatter_staged needs a chunk of at least 1 element");
  const std::vector<Range> blocks = reduced_blocks(list);
  const int64_t room = std::min(chunk, largest(blocks));
  const int64_t half = room * list.ranks;
  add_by_halves(list, half, chunks_of(largest(blocks), chunk), [&](Range piece, int64_t slot) {
    add_staged_chunk(list, blocks, piece, slot, room);
  });
  return list;
}

StepList exchange(StepList list) {
  const std::vector<Range> blocks = reduced_blocks(list);
  auto from = add_block_exchange(list, blocks);
  for (const int rank : ranks_of(list)) {
    add_shard_reduce(list, rank, std::move(from[rank]), {0, blocks[rank].size()});
  }
  return list;
}

}  // namespace

StepList reduce_scatter_flat(int ranks, int64_t count) {
  return flat_reduce_scatter(open_reduce_scatter("flat", ranks, count));
}
StepList reduce_scatter_flat(const std::vector<int64_t>& counts) {
  return flat_reduce_scatter(open_reduce_scatter("flat", static_cast<int>(counts.size()), counts));
}

StepList reduce_scatter_direct(int ranks, int64_t count) {
  return direct_reduce_scatter(open_reduce_scatter("direct", ranks, count));
}
StepList reduce_scatter_direct(const std::vector<int64_t>& counts) {
  return direct_reduce_scatter(
      open_reduce_scatter("direct", static_cast<int>(counts.size()), counts));
}

StepList reduce_scatter_staged(int ranks, int64_t count, int64_t chunk) {
  return staged_reduce_scatter(open_reduce_scatter("staged", ranks, count), chunk);
}
StepList reduce_scatter_staged(const std::vector<int64_t>& counts, int64_t chunk) {
  return staged_reduce_scatter(
      open_reduce_scatter("staged", static_cast<int>(counts.size()), counts), chunk);
}

StepList reduce_scatter_exchange(int ranks, int64_t count, Kept kept) {
  StepList list = open_reduce_scatter("exchange", ranks, count);
  keep(list, kept);
  return exchange(std::move(list));
}
StepList reduce_scatter_exchange(const std::vector<int64_t>& counts) {
  return exchange(open_reduce_scatter("exchange", static_cast<int>(counts.size()), counts));
}

}  // namespace hanji::schedule
