#include "hanji/schedule/scatter.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

template <class... Shares>
StepList open_scatter(std::string algorithm, int root, const Shares&... shares) {
  StepList list = open_list(Routine::kScatter, std::move(algorithm), shares...);
  set_root(list, root);
  return list;
}

std::vector<Range> scattered_blocks(const StepList& list) {
  return blocks_of(list, 0, Place::kInput);
}

// Rank's shard, or a piece of it, to its output from `begin` on: out of the root's `place`.
void add_shard(StepList& list, int rank, Operand from, Range to) {
  add_copy(list, rank, from, {{rank, Place::kOutput, 0, to.begin}}, to.size());
}

// One chunk of every shard; the half slot at `slot` holds one piece of `room` elements per rank.
void add_scatter_chunk(StepList& list, const std::vector<Range>& blocks, Range chunk, int64_t slot,
                       int64_t room) {
  const int root = list.root;
  for (int rank = 0; rank < list.ranks; ++rank) {
    if (rank == root) continue;
    const Range piece = piece_of(blocks[rank], chunk);
    add_copy(list, root, {root, Place::kInput, 0, piece.begin},
             {{root, Place::kSlot, 0, slot + rank * room}}, piece.size());
  }
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    const Range piece = piece_of(blocks[rank], chunk);
    Operand from{root, Place::kSlot, 0, slot + rank * room};
    if (rank == root) from = {root, Place::kInput, 0, piece.begin};
    add_shard(list, rank, from, {chunk.begin, chunk.begin + piece.size()});
  }
}

StepList flat_scatter(StepList list) {
  const std::vector<Range> blocks = scattered_blocks(list);
  const int root = list.root;
  list.slot_elements = blocks.back().end;
  add_copy(list, root, {root, Place::kInput}, {{root, Place::kSlot}}, list.slot_elements);
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_shard(list, rank, {root, Place::kSlot, 0, blocks[rank].begin}, {0, blocks[rank].size()});
  }
  return list;
}

StepList direct_scatter(StepList list) {
  const std::vector<Range> blocks = scattered_blocks(list);
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_shard(list, rank, {list.root, Place::kInput, 0, blocks[rank].begin},
              {0, blocks[rank].size()});
  }
  add_sync(list);
  return list;
}

StepList staged_scatter(StepList list, int64_t chunk) {
  require(chunk >= 1, "scatter_staged needs a chunk of at least 1 element");
  const std::vector<Range> blocks = scattered_blocks(list);
  const int64_t room = std::min(chunk, largest(blocks));
  const int64_t half = room * list.ranks;
  add_by_halves(list, half, chunks_of(largest(blocks), chunk), [&](Range piece, int64_t slot) {
    add_scatter_chunk(list, blocks, piece, slot, room);
  });
  return list;
}

int num_ranks(const std::vector<int64_t>& counts) { return static_cast<int>(counts.size()); }

}  // namespace

StepList scatter_flat(int ranks, int64_t count, int root) {
  return flat_scatter(open_scatter("flat", root, ranks, count));
}
StepList scatter_flat(const std::vector<int64_t>& counts, int root) {
  return flat_scatter(open_scatter("flat", root, num_ranks(counts), counts));
}

StepList scatter_direct(int ranks, int64_t count, int root) {
  return direct_scatter(open_scatter("direct", root, ranks, count));
}
StepList scatter_direct(const std::vector<int64_t>& counts, int root) {
  return direct_scatter(open_scatter("direct", root, num_ranks(counts), counts));
}

StepList scatter_staged(int ranks, int64_t count, int root, int64_t chunk) {
  return staged_scatter(open_scatter("staged", root, ranks, count), chunk);
}
StepList scatter_staged(const std::vector<int64_t>& counts, int root, int64_t chunk) {
  return staged_scatter(open_scatter("staged", root, num_ranks(counts), counts), chunk);
}

}  // namespace hanji::schedule
