#include "hanji/schedule/internal/builder.h"

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/schedule/internal/limits.h"

namespace hanji::schedule::internal {

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

void add_sync(StepList& list) {
  for (auto& steps : list.per_rank) steps.push_back({});
}

void add_copy(StepList& list, int rank, Operand from, std::vector<Operand> to, int64_t count) {
  if (count == 0 || to.empty()) return;
  Step step;
  step.kind = StepKind::kCopy;
  step.from = {from};
  step.to = std::move(to);
  step.count = count;
  list.per_rank[rank].push_back(std::move(step));
}

void add_reduce(StepList& list, int rank, Step reduce) {
  if (reduce.count == 0) return;
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

}  // namespace hanji::schedule::internal
