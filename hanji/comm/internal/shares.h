#pragma once

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

/// Fills in how many elements move, of the type of `tensor`, by a routine that only moves bytes:
/// `count` for each rank, or `counts` where they are given.
void set_shares(Request& request, const at::Tensor& tensor, int64_t count,
                std::vector<int64_t> counts);

}  // namespace hanji::comm
