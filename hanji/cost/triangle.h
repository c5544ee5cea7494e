#pragma once

#include <cstdint>
#include <vector>

#include "hanji/cost/linear_region.h"
#include "hanji/layout/axial_block.h"

namespace hanji::cost {

/// What the two triangle products of a block cost by one way, forward and backward together.
struct TriangleCost {
  layout::TriangleWay way = layout::TriangleWay::kChannels;
  int64_t moved_bytes = 0;    ///< Sent by all ranks together.
  int64_t kept_bytes = 0;     ///< Of a rank from forward to backward, beside its parts of operands.
  int64_t passing_bytes = 0;  ///< Of a rank while a product runs, beside its parts.
  double seconds = 0;         ///< Of the collectives.
};

/// All ways, the one that takes least time first; of equals the one that moves least, then that of least memory.
/// `block` is of one sample, or of several with as many times the width.
/// Order   ranks >= 2, sizes >= 1; `block.triangle` is not read.
std::vector<TriangleCost> compare_triangles(layout::AxialBlock block, int64_t element_bytes,
                                            const SecondsOf& seconds_of);

/// The first of these that fits `free_bytes` of a rank beside what `blocks` such blocks keep where channels
/// pass; channels, whose memory divides by the ranks, if none does.
layout::TriangleWay cheapest_triangle(const std::vector<TriangleCost>& ways, int64_t blocks,
                                      int64_t free_bytes);

}  // namespace hanji::cost
