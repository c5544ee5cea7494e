#pragma once

#include <vector>

#include "hanji/comm/group.h"

namespace hanji::comm {

/// The ranks of `group` again, in their order and on the same heap, with other options: for a
/// program that learns its deadline or its promise of bits only after the ranks have met.
///
/// Order   every rank calls it, with the same options.
/// Errors  throws as Group::subgroup().
Group regroup(const Group& group, GroupOptions options);

/// The same of some of its ranks: Group::subgroup() with options of its own.
Group regroup(const Group& group, const std::vector<int>& members, GroupOptions options);

}  // namespace hanji::comm
