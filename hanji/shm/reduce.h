#pragma once

#include <cstdint>
#include <span>

#include "hanji/base/dtype.h"
#include "hanji/base/status.h"
#include "hanji/schedule/operation.h"

namespace hanji::shm {

/// Where values of a type below 32 bits are rounded to it, to nearest even; until then they are float32.
enum class Rounding : uint8_t {
  kOnce,       ///< The result.
  kEveryNode,  ///< Every combination of the tree.
};

/// A tree reduction adds partial sums that ranks have made in the type: what is a node of one rank's own and what
/// one between ranks depends on who owns what, and the bits do not.
constexpr Rounding rounding_of(schedule::Routine routine) {
  return routine == schedule::Routine::kTreeReduce ? Rounding::kEveryNode : Rounding::kOnce;
}

struct ReduceOptions {
  std::span<const double> factors = {};  ///< kPremulSum: of each source; empty: 1.
  Rounding rounding = Rounding::kOnce;
};

/// Combines `sources` element by element by the postfix program `tree` into every destination.
///
/// Shape   `count` elements of `dtype` in each buffer; any alignment. A destination is a source,
///         or overlaps none. `tree`: i >= 0 pushes sources[i], -1 combines the top two (the lower
///         one on the left); it satisfies check_tree(), and `op` and `dtype` check_op().
/// Result  bit-equal to reduce_scalar() on every processor. float16, bfloat16 and the float8
///         types are combined in float32 and rounded as `options` say: what is too large becomes
///         the largest value in e4m3fn, infinity in e5m2. kAvg is the sum, then one division by
///         sources.size(), before the last rounding. kPremulSum multiplies sources[i] by
///         factors[i] in the type that they are summed in. Integers wrap around, their average is cut
///         toward zero; min and max return NaN if there is one. Of bool, sum and max are "or",
///         product and min "and".
/// Cost    one pass: every source byte is read once, every destination byte written once.
/// Thread  no shared state.
void reduce(DType dtype, schedule::ReduceOp op, std::span<const void* const> sources,
            std::span<const int> tree, std::span<void* const> destinations, int64_t count,
            const ReduceOptions& options = {});

/// The same, one element at a time in plain C++: the meaning of reduce().
void reduce_scalar(DType dtype, schedule::ReduceOp op, std::span<const void* const> sources,
                   std::span<const int> tree, std::span<void* const> destinations, int64_t count,
                   const ReduceOptions& options = {});

/// Refuses (kUnsupported) an op that elements of this type do not take part in.
Status check_op(schedule::ReduceOp op, DType dtype);

/// Ok if `tree` pushes each of `num_sources` once, leaves one value, and never holds more than 64
/// values or 16 intermediate results.
Status check_tree(std::span<const int> tree, int num_sources);

}  // namespace hanji::shm
