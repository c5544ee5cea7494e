#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "hanji/layout/range.h"
#include "hanji/layout/shard.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule::internal {

/// An empty list of `ranks` ranks; throws Error where ranks or count are out of range.
StepList open_list(Routine routine, std::string algorithm, int ranks, int64_t count);

/// The same for a routine with shares, uneven ones. `counts` as StepList::counts.
StepList open_list(Routine routine, std::string algorithm, int ranks, std::vector<int64_t> counts);

/// Throws Error(invalid_argument) unless `root` is a rank.
void set_root(StepList& list, int root);

/// Throws Error(invalid_argument) with `message` unless `holds`.
void require(bool holds, const char* message);

/// Appends a sync to every rank.
void add_sync(StepList& list);

/// Appends a copy or reduce to `rank`, or nothing where there are no elements.
void add_copy(StepList& list, int rank, Operand from, std::vector<Operand> to, int64_t count);
void add_reduce(StepList& list, int rank, Step reduce);

/// One operand per rank, at the same place and begin.
std::vector<Operand> of_all_ranks(int ranks, Place place, int64_t begin);

/// The pieces [begin, end) of [0, count), `chunk` elements each; the last may be short.
std::vector<layout::Range> chunks_of(int64_t count, int64_t chunk);

/// The elements of a block that a chunk, counted from the block's begin, covers; may be none.
layout::Range piece_of(layout::Range block, layout::Range chunk);

/// The largest of the blocks.
int64_t largest(const std::vector<layout::Range>& blocks);

/// What one rank sends to and receives from one peer.
struct Exchange {
  Operand send;
  int64_t send_count = 0;
  Operand receive;
  int64_t receive_count = 0;
};

/// Appends sends and receives so that every pair of ranks meets once: in round k ranks
/// i + j = k (mod ranks) are partners and the lower one sends first, so that nobody waits for
/// ever even where a send blocks until it is received.
void add_exchange(StepList& list, const std::function<Exchange(int rank, int peer)>& pair);

}  // namespace hanji::schedule::internal
