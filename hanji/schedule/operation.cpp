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
    case Routine::kReduce: return "reduce";
    case Routine::kGather: return "gather";
    case Routine::kScatter: return "scatter";
    case Routine::kAllToAll: return "all_to_all";
    case Routine::kSend: return "send";
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
    case ReduceOp::kBitAnd: return "bit_and";
    case ReduceOp::kBitOr: return "bit_or";
    case ReduceOp::kBitXor: return "bit_xor";
    case ReduceOp::kPremulSum: return "premul_sum";
  }
  return "unknown";
}

bool has_root(Routine routine) {
  return routine == Routine::kBroadcast || routine == Routine::kReduce ||
         routine == Routine::kGather || routine == Routine::kScatter;
}

bool reduces(Routine routine) {
  return routine == Routine::kAllReduce || routine == Routine::kReduceScatter ||
         routine == Routine::kReduce || routine == Routine::kTreeReduce;
}

bool has_shares(Routine routine) {
  return routine == Routine::kAllGather || routine == Routine::kReduceScatter ||
         routine == Routine::kGather || routine == Routine::kScatter ||
         routine == Routine::kAllToAll;
}

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
}

uint32_t hash_of_counts(int64_t count, std::span<const int64_t> counts) {
  constexpr uint64_t kOdd =
      0x9E3779B97F4A7C15;  // of the golden ratio: spreads neighbours far apart
  uint64_t hash = (static_cast<uint64_t>(count) + counts.size() + 1) * kOdd;
  for (const int64_t share : counts) {
    hash = (hash ^ hash >> 29 ^ static_cast<uint64_t>(share)) * kOdd;
  }
  return static_cast<uint32_t>(hash >> 32);
}

std::optional<Routine> routine_named(std::string_view name) {
  for (int i = 0; i < kNumRoutines; ++i) {
    const auto routine = static_cast<Routine>(i);
    if (name_of(routine) == name) return routine;
  }
  return std::nullopt;
}

}  // namespace hanji::schedule
