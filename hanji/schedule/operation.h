#pragma once

#include <cstdint>
#include <optional>
#include <span>
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
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kSend,
};

inline constexpr int kNumRoutines = 11;

/// How elements of several ranks become one. kAvg is the sum, divided once by the ranks; those of
/// bits are for integers only. kPremulSum is the sum of each rank's elements times a factor of that
/// rank, for floating elements only.
enum class ReduceOp : uint8_t {
  kSum,
  kAvg,
  kMin,
  kMax,
  kProd,
  kBitAnd,
  kBitOr,
  kBitXor,
  kPremulSum,
};

inline constexpr int kNumReduceOps = 9;

/// "barrier", "broadcast", "all_gather", "reduce_scatter", "all_reduce", "tree_reduce", "reduce",
/// "gather", "scatter", "all_to_all", "send".
std::string_view name_of(Routine routine);
/// "sum", "avg", "min", "max", "prod", "bit_and", "bit_or", "bit_xor", "premul_sum".
std::string_view name_of(ReduceOp op);

/// Whether one rank is asked for by number: broadcast, reduce, gather, scatter.
bool has_root(Routine routine);
/// Whether elements are combined, so that a ReduceOp matters.
bool reduces(Routine routine);
/// Whether the ranks may have different counts: all_gather, reduce_scatter, gather, scatter,
/// all_to_all.
bool has_shares(Routine routine);

/// Whether the op combines bits, which floating elements do not take part in.
bool is_bitwise(ReduceOp op);

/// A number for the elements of a call, the same on all its ranks: of `count`, or of each rank's share where
/// `counts` is not empty. Two calls of other counts have the same one by chance alone, 1 in 2^32.
/// Cost    nanoseconds, and one for each share.
uint32_t hash_of_counts(int64_t count, std::span<const int64_t> counts);

/// The inverse of name_of, or nothing.
std::optional<Routine> routine_named(std::string_view name);

}  // namespace hanji::schedule
