#include "hanji/schedule/all_to_all.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

template <class Shares>
StepList open_all_to_all(std::string algorithm, int ranks, const Shares& shares) {
  StepList list = open_list(Routine::kAllToAll, std::move(algorithm), ranks, shares);
  list.in_place = list.counts.empty();  // uneven: input and output are divided differently
  return list;
}

/// Where the blocks of all ranks lie.
struct Blocks {
  std::vector<std::vector<Range>> given;  ///< Of rank i's input, for each rank.
  std::vector<std::vector<Range>> got;    ///< Of rank i's output, from each rank.

  explicit Blocks(const StepList& list) {
    for (int rank = 0; rank < list.ranks; ++rank) {
      given.push_back(blocks_of(list, rank, Place::kInput));
      got.push_back(blocks_of(list, rank, Place::kOutput));
    }
  }
  int64_t largest_block() const {
    int64_t most = 0;
    for (const auto& row : given) most = std::max(most, largest(row));
    return most;
  }
};

// `rank` copies what it gets from everyone; start with oneself: ranks read from different ones.
template <class From>
void add_all_blocks(StepList& list, const Blocks& blocks, int rank, Range chunk, From from) {
  for (int i = 0; i < list.ranks; ++i) {
    const int owner = (rank + i) % list.ranks;
    const Range to = piece_of(blocks.got[rank][owner], chunk);
    add_copy(list, rank, from(owner), {{rank, Place::kOutput, 0, to.begin}}, to.size());
  }
}

StepList flat_all_to_all(StepList list) {
  const Blocks blocks(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    const int64_t all = blocks.given[rank].back().end;
    list.slot_elements = std::max(list.slot_elements, all);
    add_copy(list, rank, {rank, Place::kInput}, {{rank, Place::kSlot}}, all);
  }
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_all_blocks(list, blocks, rank, {0, blocks.largest_block()}, [&](int owner) {
      return Operand{owner, Place::kSlot, 0, blocks.given[owner][rank].begin};
    });
  }
  return list;
}

StepList direct_all_to_all(StepList list) {
  const Blocks blocks(list);
  list.in_place = false;
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_all_blocks(list, blocks, rank, {0, blocks.largest_block()}, [&](int owner) {
      return Operand{owner, Place::kInput, 0, blocks.given[owner][rank].begin};
    });
  }
  add_sync(list);
  return list;
}

// One chunk of every block; the half slot at `slot` holds one piece of `room` elements per rank.
void add_staged_chunk(StepList& list, const Blocks& blocks, Range chunk, int64_t slot,
                      int64_t room) {
  for (int rank = 0; rank < list.ranks; ++rank) {
    for (int i = 1; i < list.ranks; ++i) {
      const int peer = (rank + i) % list.ranks;
      const Range piece = piece_of(blocks.given[rank][peer], chunk);
      add_copy(list, rank, {rank, Place::kInput, 0, piece.begin},
               {{rank, Place::kSlot, 0, slot + peer * room}}, piece.size());
    }
  }
  add_sync(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_all_blocks(list, blocks, rank, chunk, [&](int owner) {
      if (owner != rank) return Operand{owner, Place::kSlot, 0, slot + rank * room};
      return Operand{rank, Place::kInput, 0, piece_of(blocks.given[rank][rank], chunk).begin};
    });
  }
}

StepList staged_all_to_all(StepList list, int64_t chunk) {
  require(chunk >= 1, "all_to_all_staged needs a chunk of at least 1 element");
  const Blocks blocks(list);
  const int64_t room = std::min(chunk, blocks.largest_block());
  const int64_t half = room * list.ranks;
  add_by_halves(
      list, half, chunks_of(blocks.largest_block(), chunk),
      [&](Range piece, int64_t slot) { add_staged_chunk(list, blocks, piece, slot, room); });
  return list;
}

// `rank` exchanges its half of its block for `peer` with the same half of the peer's block for it.
void add_swap(StepList& list, int rank, int peer, int64_t chunk) {
  const Range half = layout::shard_range(list.count, 2, rank < peer ? 0 : 1);
  const auto block = [&](int owner, int other, Place place, int64_t begin) {
    return Operand{owner, place, 0, other * list.count + begin};
  };
  const Operand slot{rank, Place::kSlot, 0, 0};
  for (const Range& piece : chunks_of(half.size(), chunk)) {
    const int64_t at = half.begin + piece.begin;
    add_copy(list, rank, block(rank, peer, Place::kInput, at), {slot}, piece.size());
    add_copy(list, rank, block(peer, rank, Place::kInput, at),
             {block(rank, peer, Place::kOutput, at)}, piece.size());
    add_copy(list, rank, slot, {block(peer, rank, Place::kOutput, at)}, piece.size());
  }
}

}  // namespace

StepList all_to_all_flat(int ranks, int64_t count) {
  return flat_all_to_all(open_all_to_all("flat", ranks, count));
}
StepList all_to_all_flat(int ranks, const std::vector<int64_t>& counts) {
  return flat_all_to_all(open_all_to_all("flat", ranks, counts));
}

StepList all_to_all_direct(int ranks, int64_t count) {
  return direct_all_to_all(open_all_to_all("direct", ranks, count));
}
StepList all_to_all_direct(int ranks, const std::vector<int64_t>& counts) {
  return direct_all_to_all(open_all_to_all("direct", ranks, counts));
}

StepList all_to_all_swap(int ranks, int64_t count, int64_t chunk) {
  require(chunk >= 1, "all_to_all_swap needs a chunk of at least 1 element");
  StepList list = open_all_to_all("swap", ranks, count);
  list.slot_elements = std::min(chunk, count);
  add_sync(list);
  for (int rank = 0; rank < ranks; ++rank) {
    const Operand own{rank, Place::kInput, 0, rank * count};
    add_copy(list, rank, own, {{rank, Place::kOutput, 0, rank * count}}, count);
    for (int i = 1; i < ranks; ++i) {
      add_swap(list, rank, (rank + i) % ranks, chunk);
    }
  }
  add_sync(list);
  return list;
}

StepList all_to_all_staged(int ranks, int64_t count, int64_t chunk) {
  return staged_all_to_all(open_all_to_all("staged", ranks, count), chunk);
}
StepList all_to_all_staged(int ranks, const std::vector<int64_t>& counts, int64_t chunk) {
  return staged_all_to_all(open_all_to_all("staged", ranks, counts), chunk);
}

}  // namespace hanji::schedule
