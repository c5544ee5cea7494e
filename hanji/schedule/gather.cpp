#include "hanji/schedule/gather.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

template <class... Shares>
StepList open_gather(std::string algorithm, int root, const Shares&... shares) {
  StepList list = open_list(Routine::kGather, std::move(algorithm), shares...);
  set_root(list, root);
  return list;
}

std::vector<Range> blocks_of_root(const StepList& list) {
  return blocks_of(list, 0, Place::kOutput);
}

// One chunk of every rank's input through its slot at `slot`; the root's own part goes straight.
void add_gather_chunk(StepList& list, const std::vector<Range>& blocks, Range chunk, int64_t slot) {
  const int root = list.root;
  for (int rank = 0; rank < list.ranks; ++rank) {
    if (rank == root) continue;
    add_copy(list, rank, {rank, Place::kInput, 0, chunk.begin}, {{rank, Place::kSlot, 0, slot}},
             piece_of(blocks[rank], chunk).size());
  }
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    const Range piece = piece_of(blocks[rank], chunk);
    Operand from{rank, Place::kSlot, 0, slot};
    if (rank == root) from = {rank, Place::kInput, 0, chunk.begin};
    add_copy(list, root, from, {{root, Place::kOutput, 0, piece.begin}}, piece.size());
  }
}

StepList flat_gather(StepList list) {
  const std::vector<Range> blocks = blocks_of_root(list);
  list.slot_elements = largest(blocks);
  add_gather_chunk(list, blocks, {0, list.slot_elements}, 0);
  return list;
}

StepList direct_gather(StepList list) {
  const std::vector<Range> blocks = blocks_of_root(list);
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_copy(list, rank, {rank, Place::kInput},
             {{list.root, Place::kOutput, 0, blocks[rank].begin}}, blocks[rank].size());
  }
  add_sync(list);
  return list;
}

StepList staged_gather(StepList list, int64_t chunk) {
  require(chunk >= 1, "gather_staged needs a chunk of at least 1 element");
  const std::vector<Range> blocks = blocks_of_root(list);
  const int64_t half = std::min(chunk, largest(blocks));
  add_by_halves(list, half, chunks_of(largest(blocks), chunk),
                [&](Range piece, int64_t slot) { add_gather_chunk(list, blocks, piece, slot); });
  return list;
}

int num_ranks_of(const std::vector<int64_t>& counts) { return static_cast<int>(counts.size()); }

}  // namespace

StepList gather_flat(int ranks, int64_t count, int root) {
  return flat_gather(open_gather("flat", root, ranks, count));
}
StepList gather_flat(const std::vector<int64_t>& counts, int root) {
  return flat_gather(open_gather("flat", root, num_ranks_of(counts), counts));
}

StepList gather_direct(int ranks, int64_t count, int root) {
  return direct_gather(open_gather("direct", root, ranks, count));
}
StepList gather_direct(const std::vector<int64_t>& counts, int root) {
  return direct_gather(open_gather("direct", root, num_ranks_of(counts), counts));
}

StepList gather_staged(int ranks, int64_t count, int root, int64_t chunk) {
  return staged_gather(open_gather("staged", root, ranks, count), chunk);
}
StepList gather_staged(const std::vector<int64_t>& counts, int root, int64_t chunk) {
  return staged_gather(open_gather("staged", root, num_ranks_of(counts), counts), chunk);
}

}  // namespace hanji::schedule
