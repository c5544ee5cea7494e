#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hanji::schedule {

/// What a collective does; see StepList for the buffers of each.
enum class Routine : uint8_t {
  kBarrier,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kTreeReduce,
};

inline constexpr int kNumRoutines = 6;

/// How elements of several ranks become one. kAvg is the sum, divided once by the ranks.
enum class ReduceOp : uint8_t { kSum, kAvg, kMin, kMax, kProd };

inline constexpr int kNumReduceOps = 5;

/// "barrier", "broadcast", "all_gather", "reduce_scatter", "all_reduce", "tree_reduce".
std::string_view name_of(Routine routine);
/// "sum", "avg", "min", "max", "prod".
std::string_view name_of(ReduceOp op);

/// The inverse of name_of, or nothing.
std::optional<Routine> routine_named(std::string_view name);

}  // namespace hanji::schedule
