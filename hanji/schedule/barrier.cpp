#include "hanji/schedule/barrier.h"

#include <iterator>
#include <utility>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {

StepList barrier(int ranks) {
  StepList list = internal::open_list(Routine::kBarrier, "sync", ranks, 0);
  internal::add_sync(list);
  return list;
}

StepList meet_first(StepList list) {
  StepList opening = barrier(list.ranks);
  for (int rank = 0; rank < list.ranks; ++rank) {
    std::vector<Step>& steps = opening.per_rank[rank];
    steps.insert(steps.end(), std::make_move_iterator(list.per_rank[rank].begin()),
                 std::make_move_iterator(list.per_rank[rank].end()));
  }
  list.per_rank = std::move(opening.per_rank);
  return list;
}

}  // namespace hanji::schedule
