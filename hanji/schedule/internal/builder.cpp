#include "hanji/schedule/internal/builder.h"

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/schedule/internal/limits.h"
#include "hanji/schedule/pairwise_tree.h"

namespace hanji::schedule::internal {
namespace {

Step step_of(const Message& message) {
  Step step;
  step.kind = message.kind;
  step.peer = message.peer;
  step.count = message.count;
  (message.kind == StepKind::kSend ? step.from : step.to) = {message.at};
  return step;
}

}  // namespace

void require(bool holds, const char* message) {
  if (!holds) throw Error(base::invalid_argument(message));
}

StepList open_list(Routine routine, std::string algorithm, int ranks, int64_t count) {
  require(ranks >= 1 && ranks <= kMaxRanks, "a step list needs 1 to 10240 ranks");
  require(count >= 0 && count <= kMaxElements / ranks, "a step list's count is out of range");
  StepList list;
  list.routine = routine;
  list.algorithm = std::move(algorithm);
  list.ranks = ranks;
  list.count = count;
  list.per_rank.resize(ranks);
  return list;
}

StepList open_list(Routine routine, std::string algorithm, int ranks, std::vector<int64_t> counts) {
  const size_t per_rank = routine == Routine::kAllToAll ? static_cast<size_t>(ranks) : 1;
  require(ranks >= 1 && ranks <= kMaxRanks, "a step list needs 1 to 10240 ranks");
  require(counts.size() == static_cast<size_t>(ranks) * per_rank,
          "an uneven step list needs a count for each rank (all_to_all: for each pair of ranks)");
  int64_t sum = 0;
  for (const int64_t count : counts) {
    require(count >= 0 && count <= kMaxElements / ranks - sum, "a count per rank is out of range");
    sum += count;
  }
  StepList list = open_list(routine, std::move(algorithm), ranks, sum);
  list.counts = std::move(counts);
  return list;
}

void keep(StepList& list, Kept kept) {
  require(kept.is_whole() || kept.rank < list.ranks, "the rank to keep is not one of the list");
  list.kept = kept;
}

void set_root(StepList& list, int root) {
  require(root >= 0 && root < list.ranks, "the root is not a rank of the group");
  list.root = root;
}

StepList open_broadcast(std::string algorithm, int ranks, int64_t count, int root) {
  StepList list = open_list(Routine::kBroadcast, std::move(algorithm), ranks, count);
  set_root(list, root);
  return list;
}

void add_sync(StepList& list) {
  for (auto& steps : list.per_rank) steps.push_back({});
}

void add_copy(StepList& list, int rank, Operand from, std::vector<Operand> to, int64_t count) {
  if (count <= 0 || to.empty() || !keeps(list, rank)) return;
  Step step;
  step.kind = StepKind::kCopy;
  step.from = {from};
  step.to = std::move(to);
  step.count = count;
  list.per_rank[rank].push_back(std::move(step));
}

void add_reduce(StepList& list, int rank, Step reduce) {
  if (reduce.count <= 0 || !keeps(list, rank)) return;
  reduce.kind = StepKind::kReduce;
  list.per_rank[rank].push_back(std::move(reduce));
}

void add_tree_reduce(StepList& list, int rank, std::vector<Operand> from, std::vector<Operand> to,
                     int64_t count) {
  Step reduce;
  reduce.from = std::move(from);
  reduce.to = std::move(to);
  reduce.count = count;
  reduce.tree = pairwise_tree(list.ranks);
  add_reduce(list, rank, std::move(reduce));
}

void add_pair(StepList& list, int rank, StepKind kind, const Pair& pair) {
  if (pair.count == 0 || !keeps(list, rank)) return;
  Step step;
  step.kind = kind;
  step.from = {pair.left, pair.right};
  step.to = {pair.to};
  step.count = pair.count;
  step.tree = {0, 1, -1};
  list.per_rank[rank].push_back(std::move(step));
}

void add_own_reduce(StepList& list) {
  Step step;
  step.from = {{0, Place::kInput}};
  step.to = {{0, Place::kOutput}};
  step.count = list.count;
  step.tree = {0};
  add_reduce(list, 0, std::move(step));
}

Message send_to(int peer, Operand from, int64_t count) {
  return {StepKind::kSend, peer, from, count};
}

Message receive_from(int peer, Operand to, int64_t count) {
  return {StepKind::kRecv, peer, to, count};
}

void add_messages(StepList& list, int rank, const std::vector<Message>& messages) {
  if (!keeps(list, rank)) return;
  bool joined = false;
  for (const Message& message : messages) {
    if (message.count == 0) continue;
    list.per_rank[rank].push_back(step_of(message));
    list.per_rank[rank].back().joined = std::exchange(joined, true);
  }
}

layout::Range slice_of(int64_t count, int parts, int index) {
  return layout::shard_range(count, parts, index, 1);
}

std::vector<Operand> of_all_ranks(int ranks, Place place, int64_t begin) {
  std::vector<Operand> operands;
  for (int rank = 0; rank < ranks; ++rank) operands.push_back({rank, place, 0, begin});
  return operands;
}

std::vector<layout::Range> chunks_of(int64_t count, int64_t chunk) {
  std::vector<layout::Range> chunks;
  for (int64_t begin = 0; begin < count; begin += chunk) {
    chunks.push_back({begin, std::min(count, begin + chunk)});
  }
  return chunks;
}

void add_by_halves(StepList& list, int64_t half, const std::vector<layout::Range>& chunks,
                   const std::function<void(layout::Range chunk, int64_t slot)>& add_chunk) {
  list.slot_elements = 2 * half;
  add_sync(list);
  int64_t slot = 0;
  for (const layout::Range& chunk : chunks) {
    add_chunk(chunk, slot);
    slot = half - slot;
  }
}

layout::Range piece_of(layout::Range block, layout::Range chunk) {
  return {std::min(block.begin + chunk.begin, block.end),
          std::min(block.begin + chunk.end, block.end)};
}

int64_t largest(const std::vector<layout::Range>& blocks) {
  int64_t most = 0;
  for (const layout::Range& block : blocks) most = std::max(most, block.size());
  return most;
}

void add_exchange(StepList& list, const std::function<Exchange(int rank, int peer)>& pair) {
  for (int round = 0; round < list.ranks; ++round) {
    for (const int rank : ranks_of(list)) {
      const int peer = (round - rank + list.ranks) % list.ranks;
      const bool rests = peer == rank;
      if (rests && (!list.kept.longest_path || list.ranks < 3)) continue;
      const int next = (rank + 1) % list.ranks, last = (rank + list.ranks - 1) % list.ranks;
      const Exchange exchange = rests ? pair(next, last) : pair(rank, peer);
      add_messages(list, rank,
                   {send_to(rests ? next : peer, exchange.send, exchange.send_count),
                    receive_from(rests ? last : peer, exchange.receive, exchange.receive_count)});
    }
  }
}

std::vector<std::vector<Operand>> add_block_exchange(StepList& list,
                                                     const std::vector<layout::Range>& blocks) {
  const int64_t room = largest(blocks);
  list.slot_elements = room * list.ranks;
  add_exchange(list, [&](int rank, int peer) {
    return Exchange{{rank, Place::kInput, 0, blocks[peer].begin},
                    blocks[peer].size(),
                    {rank, Place::kSlot, 0, peer * room},
                    blocks[rank].size()};
  });
  std::vector<std::vector<Operand>> from(list.ranks);
  for (const int rank : ranks_of(list)) {
    for (int i = 0; i < list.ranks; ++i) from[rank].push_back({rank, Place::kSlot, 0, i * room});
    from[rank][rank] = {rank, Place::kInput, 0, blocks[rank].begin};
  }
  return from;
}

}  // namespace hanji::schedule::internal
