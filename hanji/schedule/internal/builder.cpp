#include "hanji/schedule/internal/builder.h"

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/schedule/internal/limits.h"

namespace hanji::schedule::internal {
namespace {

Step message(StepKind kind, int peer, Operand operand, int64_t count) {
  Step step;
  step.kind = kind;
  step.peer = peer;
  step.count = count;
  (kind == StepKind::kSend ? step.from : step.to) = {operand};
  return step;
}

}  // namespace

void require(bool holds, const char* message) {
  if (!holds) throw Error(base::invalid_argument(message));
}

StepList open_list(Routine routine, std::string algorithm, int ranks, int64_t count) {
  require(ranks >= 1 && ranks <= kMaxRanks, "a step list needs 1 to 1024 ranks");
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
  require(ranks >= 1 && ranks <= kMaxRanks, "a step list needs 1 to 1024 ranks");
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

void set_root(StepList& list, int root) {
  require(root >= 0 && root < list.ranks, "the root is not a rank of the group");
  list.root = root;
}

void add_sync(StepList& list) {
  for (auto& steps : list.per_rank) steps.push_back({});
}

void add_copy(StepList& list, int rank, Operand from, std::vector<Operand> to, int64_t count) {
  if (count <= 0 || to.empty()) return;
  Step step;
  step.kind = StepKind::kCopy;
  step.from = {from};
  step.to = std::move(to);
  step.count = count;
  list.per_rank[rank].push_back(std::move(step));
}

void add_reduce(StepList& list, int rank, Step reduce) {
  if (reduce.count <= 0) return;
  reduce.kind = StepKind::kReduce;
  list.per_rank[rank].push_back(std::move(reduce));
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
    for (int rank = 0; rank < list.ranks; ++rank) {
      const int peer = (round - rank + list.ranks) % list.ranks;
      if (peer == rank) continue;
      const Exchange exchange = pair(rank, peer);
      std::vector<Step> steps = {
          message(StepKind::kSend, peer, exchange.send, exchange.send_count),
          message(StepKind::kRecv, peer, exchange.receive, exchange.receive_count)};
      if (rank > peer) std::swap(steps[0], steps[1]);
      for (Step& step : steps) {
        if (step.count > 0) list.per_rank[rank].push_back(std::move(step));
      }
    }
  }
}

}  // namespace hanji::schedule::internal
