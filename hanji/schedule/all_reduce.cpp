#include "hanji/schedule/all_reduce.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;
using layout::shard_range;

// Slices other than `mine` as at most two contiguous pieces.
std::vector<Range> around(Range whole, Range mine) {
  return {{whole.begin, mine.begin}, {mine.end, whole.end}};
}

// What happens to one chunk between the copy in and the copy out.
void add_staged_chunk(StepList& list, Range chunk) {
  const int ranks = list.ranks;
  const auto slice_of = [&](int rank) {  // relative to the chunk, which is also its slot place
    return shard_range(chunk.size(), ranks, rank);
  };
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Range& piece : around({0, chunk.size()}, slice_of(rank))) {
      add_copy(list, rank, {rank, Place::kInput, 0, chunk.begin + piece.begin},
               {{rank, Place::kSlot, 0, piece.begin}}, piece.size());
    }
  }
  add_sync(list);
  for (int rank = 0; rank < ranks; ++rank) {
    const Range slice = slice_of(rank);
    std::vector<Operand> from = of_all_ranks(ranks, Place::kSlot, slice.begin);
    from[rank] = {rank, Place::kInput, 0, chunk.begin + slice.begin};
    std::vector<Operand> to = {{rank, Place::kOutput, 0, chunk.begin + slice.begin}};
    if (ranks > 1) to.push_back({rank, Place::kResult, 0, slice.begin});
    add_tree_reduce(list, rank, std::move(from), std::move(to), slice.size());
  }
  add_sync(list);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int i = 1; i < ranks; ++i) {  // start with the neighbour: ranks read from different ones
      const int owner = (rank + i) % ranks;
      const Range slice = slice_of(owner);
      add_copy(list, rank, {owner, Place::kResult, 0, slice.begin},
               {{rank, Place::kOutput, 0, chunk.begin + slice.begin}}, slice.size());
    }
  }
}

}  // namespace

StepList all_reduce_flat(int ranks, int64_t count) {
  StepList list = open_list(Routine::kAllReduce, "flat", ranks, count);
  list.slot_elements = count;
  for (int rank = 0; rank < ranks; ++rank) {
    add_copy(list, rank, {rank, Place::kInput}, {{rank, Place::kSlot}}, count);
  }
  add_sync(list);
  for (int rank = 0; rank < ranks; ++rank) {
    add_tree_reduce(list, rank, of_all_ranks(ranks, Place::kSlot, 0), {{rank, Place::kOutput}},
                    count);
  }
  return list;
}

StepList all_reduce_direct(int ranks, int64_t count) {
  StepList list = open_list(Routine::kAllReduce, "direct", ranks, count);
  add_sync(list);
  for (int rank = 0; rank < ranks; ++rank) {
    const Range slice = shard_range(count, ranks, rank);
    add_tree_reduce(list, rank, of_all_ranks(ranks, Place::kInput, slice.begin),
                    of_all_ranks(ranks, Place::kOutput, slice.begin), slice.size());
  }
  add_sync(list);
  return list;
}

StepList all_reduce_staged(int ranks, int64_t count, int64_t chunk) {
  require(chunk >= 1, "all_reduce_staged needs a chunk of at least 1 element");
  StepList list = open_list(Routine::kAllReduce, "staged", ranks, count);
  list.slot_elements = std::min(chunk, count);
  add_sync(list);
  for (const Range& piece : chunks_of(count, chunk)) add_staged_chunk(list, piece);
  return list;
}

StepList all_reduce_exchange(int ranks, int64_t count) {
  StepList list = open_list(Routine::kAllReduce, "exchange", ranks, count);
  std::vector<Range> slices;
  for (int rank = 0; rank < ranks; ++rank) slices.push_back(shard_range(count, ranks, rank));
  auto from = add_block_exchange(list, slices);
  for (int rank = 0; rank < ranks; ++rank) {
    add_tree_reduce(list, rank, std::move(from[rank]),
                    {{rank, Place::kOutput, 0, slices[rank].begin}}, slices[rank].size());
  }
  add_exchange(list, [&](int rank, int peer) {
    return Exchange{{rank, Place::kOutput, 0, slices[rank].begin},
                    slices[rank].size(),
                    {rank, Place::kOutput, 0, slices[peer].begin},
                    slices[peer].size()};
  });
  return list;
}

}  // namespace hanji::schedule
