#pragma once

#include <cstdint>
#include <vector>

namespace hanji::schedule {

/// Where a node over `length` leaves splits: the largest power of two below length (length >= 2).
int64_t split_point(int64_t length);

/// The one order of every sum of hanji over n values, as a postfix program: i >= 0 pushes value
/// i, -1 combines the top two. A node over [a, b) combines [a, a + k) with [a + k, b), k the
/// largest power of two below b - a. n = 5 gives 0 1 -1 2 3 -1 -1 4 -1: ((0+1)+(2+3))+4.
std::vector<int> pairwise_tree(int n);

}  // namespace hanji::schedule
