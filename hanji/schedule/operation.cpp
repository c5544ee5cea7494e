#include "hanji/schedule/operation.h"

namespace hanji::schedule {

std::string_view name_of(Routine routine) {
  switch (routine) {
    case Routine::kBarrier: return "barrier";
    case Routine::kBroadcast: return "broadcast";
    case Routine::kAllGather: return "all_gather";
    case Routine::kReduceScatter: return "reduce_scatter";
    case Routine::kAllReduce: return "all_reduce";
    case Routine::kTreeReduce: return "tree_reduce";
  }
  return "unknown";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kAvg: return "avg";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kProd: return "prod";
  }
  return "unknown";
}

std::optional<Routine> routine_named(std::string_view name) {
  for (int i = 0; i < kNumRoutines; ++i) {
    const auto routine = static_cast<Routine>(i);
    if (name_of(routine) == name) return routine;
  }
  return std::nullopt;
}

}  // namespace hanji::schedule
