#pragma once

#include <functional>
#include <ranges>
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

/// The same of a broadcast; throws Error where `root` is no rank.
StepList open_broadcast(std::string algorithm, int ranks, int64_t count, int root);

/// Makes of a list that was just opened one of some ranks' steps: add_*() leave out all others.
/// Throws Error(invalid_argument) unless that is a rank.
void keep(StepList& list, Kept kept);
/// The ranks whose steps the list has.
inline auto ranks_of(const StepList& list) {
  return list.kept.is_whole() ? std::views::iota(0, list.ranks)
                              : std::views::iota(list.kept.rank, list.kept.rank + 1);
}
inline bool keeps(const StepList& list, int rank) {
  return list.kept.is_whole() || rank == list.kept.rank;
}

/// Throws Error(invalid_argument) unless `root` is a rank.
void set_root(StepList& list, int root);

/// Throws Error(invalid_argument) with `message` unless `holds`.
void require(bool holds, const char* message);

/// Appends a sync to every rank.
void add_sync(StepList& list);

/// Appends a copy or reduce to `rank`, or nothing where there are no elements.
void add_copy(StepList& list, int rank, Operand from, std::vector<Operand> to, int64_t count);
void add_reduce(StepList& list, int rank, Step reduce);
/// The same of one operand per rank, combined by pairwise_tree(ranks).
void add_tree_reduce(StepList& list, int rank, std::vector<Operand> from, std::vector<Operand> to,
                     int64_t count);

/// One operand per rank, at the same place and begin.
std::vector<Operand> of_all_ranks(int ranks, Place place, int64_t begin);

/// The pieces [begin, end) of [0, count), `chunk` elements each; the last may be short.
std::vector<layout::Range> chunks_of(int64_t count, int64_t chunk);

/// The way of private tensors: slots of two halves, a sync, and then each chunk through one half by
/// turns, so that peers empty one while the other is filled. `add_chunk` is told the chunk and where
/// in the slot its half begins.
void add_by_halves(StepList& list, int64_t half, const std::vector<layout::Range>& chunks,
                   const std::function<void(layout::Range chunk, int64_t slot)>& add_chunk);

/// The elements of a block that a chunk, counted from the block's begin, covers; may be none.
layout::Range piece_of(layout::Range block, layout::Range chunk);

/// The largest of the blocks.
int64_t largest(const std::vector<layout::Range>& blocks);

/// Appends to `rank` the step that makes `to` of left and right, in this order: kReduce or
/// kCombine. Nothing where count is 0.
struct Pair {
  Operand left;
  Operand right;
  Operand to;
  int64_t count = 0;
};
void add_pair(StepList& list, int rank, StepKind kind, const Pair& pair);
/// The result of one rank alone: its input, reduced.
void add_own_reduce(StepList& list);

/// One send or receive of a rank.
struct Message {
  StepKind kind = StepKind::kSend;
  int peer = -1;
  Operand at;
  int64_t count = 0;
};
Message send_to(int peer, Operand from, int64_t count);
Message receive_from(int peer, Operand to, int64_t count);
/// Appends one group of messages to `rank`; those of 0 elements are left out.
void add_messages(StepList& list, int rank, const std::vector<Message>& messages);

/// Slice `index` of [0, count) over `parts` ranks; as even as whole elements allow.
layout::Range slice_of(int64_t count, int parts, int index);

/// What one rank sends to and receives from one peer.
struct Exchange {
  Operand send;
  int64_t send_count = 0;
  Operand receive;
  int64_t receive_count = 0;
};

/// Appends sends and receives so that every pair of ranks meets once: in round k ranks
/// i + j = k (mod ranks) are partners, and each sends while it receives. The longest path has a
/// round more than a rank has partners: no rank rests in two rounds that follow each other.
void add_exchange(StepList& list, const std::function<Exchange(int rank, int peer)>& pair);

/// The same where every rank gets its block of all inputs: its own stays there, the others arrive in
/// the slot, as far apart as the largest block is long.
///
/// Result  for each rank that is kept where its block of each input lies then.
std::vector<std::vector<Operand>> add_block_exchange(StepList& list,
                                                     const std::vector<layout::Range>& blocks);

}  // namespace hanji::schedule::internal
