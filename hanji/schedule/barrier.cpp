#include "hanji/schedule/barrier.h"

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {

StepList barrier(int ranks) {
  StepList list = internal::open_list(Routine::kBarrier, "sync", ranks, 0);
  internal::add_sync(list);
  return list;
}

}  // namespace hanji::schedule
