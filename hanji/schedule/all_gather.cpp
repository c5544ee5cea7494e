#include "hanji/schedule/all_gather.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

template <class... Shares>
StepList open_all_gather(std::string algorithm, const Shares&... shares) {
  return open_list(Routine::kAllGather, std::move(algorithm), shares...);
}

std::vector<Range> gathered_blocks(const StepList& list) {
  return blocks_of(list, 0, Place::kOutput);
}

// One chunk of every rank's input through its slot at `slot`.
void add_all_gather_chunk(StepList& list, const std::vector<Range>& blocks, Range chunk,
                          int64_t slot) {
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_copy(list, rank, {rank, Place::kInput, 0, chunk.begin}, {{rank, Place::kSlot, 0, slot}},
             piece_of(blocks[rank], chunk).size());
  }
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    for (int i = 0; i < list.ranks; ++i) {  // start with oneself: ranks read from different ones
      const int owner = (rank + i) % list.ranks;
      const Range piece = piece_of(blocks[owner], chunk);
      add_copy(list, rank, {owner, Place::kSlot, 0, slot}, {{rank, Place::kOutput, 0, piece.begin}},
               piece.size());
    }
  }
}

StepList flat_all_gather(StepList list) {
  const std::vector<Range> blocks = gathered_blocks(list);
  list.slot_elements = largest(blocks);
  add_all_gather_chunk(list, blocks, {0, list.slot_elements}, 0);
  return list;
}

StepList direct_all_gather(StepList list) {
  const std::vector<Range> blocks = gathered_blocks(list);
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_copy(list, rank, {rank, Place::kInput},
             of_all_ranks(list.ranks, Place::kOutput, blocks[rank].begin), blocks[rank].size());
  }
  add_sync(list);
  return list;
}

StepList staged_all_gather(StepList list, int64_t chunk) {
  require(chunk >= 1, "all_gather_staged needs a chunk of at least 1 element");
  const std::vector<Range> blocks = gathered_blocks(list);
  const int64_t half = std::min(chunk, largest(blocks));
  add_by_halves(list, half, chunks_of(largest(blocks), chunk), [&](Range piece, int64_t slot) {
    add_all_gather_chunk(list, blocks, piece, slot);
  });
  return list;
}

}  // namespace

StepList all_gather_flat(int ranks, int64_t count) {
  return flat_all_gather(open_all_gather("flat", ranks, count));
}
StepList all_gather_flat(const std::vector<int64_t>& counts) {
  return flat_all_gather(open_all_gather("flat", static_cast<int>(counts.size()), counts));
}

StepList all_gather_direct(int ranks, int64_t count) {
  return direct_all_gather(open_all_gather("direct", ranks, count));
}
StepList all_gather_direct(const std::vector<int64_t>& counts) {
  return direct_all_gather(open_all_gather("direct", static_cast<int>(counts.size()), counts));
}

StepList all_gather_staged(int ranks, int64_t count, int64_t chunk) {
  return staged_all_gather(open_all_gather("staged", ranks, count), chunk);
}
StepList all_gather_staged(const std::vector<int64_t>& counts, int64_t chunk) {
  return staged_all_gather(open_all_gather("staged", static_cast<int>(counts.size()), counts),
                           chunk);
}

}  // namespace hanji::schedule
