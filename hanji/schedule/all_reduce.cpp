#include "hanji/schedule/all_reduce.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;
using layout::shard_range;

// Where a staged chunk passes: slot and result have two halves, and while peers read one half the
// owner fills the other.
struct Stage {
  StepList& list;
  int64_t half;

  Range slice(Range chunk, int rank) const {  // relative to the chunk
    return shard_range(chunk.size(), list.ranks, rank);
  }
  void put(Range chunk, int index) const {
    const int64_t at = index % 2 * half;
    for (int rank = 0; rank < list.ranks; ++rank) {
      const Range mine = slice(chunk, rank);
      for (const Range& piece : {Range{0, mine.begin}, Range{mine.end, chunk.size()}}) {
        add_copy(list, rank, {rank, Place::kInput, 0, chunk.begin + piece.begin},
                 {{rank, Place::kSlot, 0, at + piece.begin}}, piece.size());
      }
    }
  }

  void combine(Range chunk, int index) const {
    const int64_t at = index % 2 * half;
    for (int rank = 0; rank < list.ranks; ++rank) {
      const Range mine = slice(chunk, rank);
      const int64_t begin = chunk.begin + mine.begin;
      std::vector<Operand> from = of_all_ranks(list.ranks, Place::kSlot, at + mine.begin);
      from[rank] = {rank, Place::kInput, 0, begin};
      std::vector<Operand> to = {{rank, Place::kOutput, 0, begin}};
      if (list.ranks > 1) to.push_back({rank, Place::kResult, 0, at + mine.begin});
      add_tree_reduce(list, rank, std::move(from), std::move(to), mine.size());
    }
  }

  void get(Range chunk, int index) const {
    for (int rank = 0; rank < list.ranks; ++rank) {
      for (int i = 1; i < list.ranks; ++i) {  // start with the neighbour: all read different ones
        const int owner = (rank + i) % list.ranks;
        const Range slice_there = slice(chunk, owner);
        add_copy(list, rank, {owner, Place::kResult, 0, index % 2 * half + slice_there.begin},
                 {{rank, Place::kOutput, 0, chunk.begin + slice_there.begin}}, slice_there.size());
      }
    }
  }
};

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
  const std::vector<Range> chunks = chunks_of(count, chunk);
  const Stage stage{list, std::min(chunk, count)};
  list.slot_elements = 2 * stage.half;
  add_sync(list);
  if (chunks.empty()) return list;
  stage.put(chunks[0], 0);
  add_sync(list);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto index = static_cast<int>(i);
    stage.combine(chunks[i], index);
    if (i + 1 < chunks.size()) stage.put(chunks[i + 1], index + 1);
    add_sync(list);
    stage.get(chunks[i], index);
  }
  return list;
}

StepList all_reduce_exchange(int ranks, int64_t count, Kept kept) {
  StepList list = open_list(Routine::kAllReduce, "exchange", ranks, count);
  keep(list, kept);
  std::vector<Range> slices;
  for (int rank = 0; rank < ranks; ++rank) slices.push_back(shard_range(count, ranks, rank));
  auto from = add_block_exchange(list, slices);
  for (const int rank : ranks_of(list)) {
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
