#pragma once

#include <cstdint>

#include "hanji/comm/group.h"

namespace hanji::comm {

/// Returns the first of 2^32 tags that nobody else has on the group, for the calls of an object that
/// all ranks make alike: to CallOptions::tag they give this plus a number of theirs. What two such
/// objects call then never matches, whatever their shapes; prepare() does the same for each Call.
///
/// Order   every rank of the group calls it, at the same place among prepare() and new_tags().
/// Cost    no communication.
uint64_t new_tags(const Group& group);

}  // namespace hanji::comm
