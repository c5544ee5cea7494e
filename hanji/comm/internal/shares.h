#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/internal/engine.h"

namespace hanji::comm {

/// Refuses a root that is not a rank of the group.
void check_root(const Request& request, const Group& group);

/// Refuses counts unless there are `expected` of them, none negative, with a sum that fits.
void check_counts(const std::vector<int64_t>& counts, int64_t expected, const Request& request);

/// Elements before the share of `rank`; of all shares for rank = size.
int64_t sum_before(const std::vector<int64_t>& counts, int64_t rank);

/// Fills in how many elements of `type` move by a routine that only moves bytes: `count` for each
/// rank, or `counts` where they are given.
void set_shares(Request& request, c10::ScalarType type, int64_t count, std::vector<int64_t> counts);
/// The same of elements that are reduced, if `type` can be.
void set_reduced(Request& request, c10::ScalarType type, int64_t count,
                 std::vector<int64_t> counts);

/// What one rank gives and gets, in elements as Request::count counts them, and where in the larger
/// buffer the other lies when the call is in place.
struct Extents {
  static constexpr int64_t kNone = -1;  ///< The rank gives, or gets, nothing.
  int64_t input = kNone;
  int64_t output = kNone;
  int64_t input_offset = 0;
  int64_t output_offset = 0;
};
Extents extents_of(const Request& request, int rank, int size);

/// Refuses an input or output of another number of elements than extents_of() says, and a pair that
/// differs in dtype or device, or overlaps without being exactly in place.
void check_extents(const Request& request, const Group& group);

}  // namespace hanji::comm
