#pragma once

#include <span>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/layout/unit.h"

namespace hanji::parallel {

/// The norm of gradients of which every rank has its shards of `units`.
///
/// `mine`: norm_blocks() of every piece of this rank's shards, unit by unit; -1
/// in place of each
///         where a parameter has no gradient.
/// `tag`: of new_tags(), of who has the shards.
/// Order   a collective.
/// Result  the bits of clip_grad_norm() of one process that has all of them.
/// Cost    an all_gather of 8 bytes per 1024 elements.
double norm_of_shards(std::span<const layout::Unit *const> units, const std::vector<double> &mine,
                      const comm::Group &group, uint64_t tag);

}  // namespace hanji::parallel
