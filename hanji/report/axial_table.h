#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/cost/triangle.h"
#include "hanji/layout/axial_block.h"

namespace hanji::report {

/// A line for each operation of the block: its layouts, the collective, the bytes that all ranks send, and
/// those of other ways; then sums and the memory of a rank.
std::string axial_table(const layout::AxialBlock& block, int64_t element_bytes,
                        int columns = base::kTerminalColumns);

/// A line for each rank (of many the first and the last): its rows of pairs, how many of them are padding, its
/// sequences, and the mask; then in words how uneven and padded rows lie.
std::string axial_rows_table(const layout::AxialBlock& block, int64_t element_bytes,
                             int columns = base::kTerminalColumns);

/// A line for each way to multiply the two triangles of the block: bytes, memory and seconds, where
/// they are above 0.
std::string triangle_table(const std::vector<cost::TriangleCost>& ways,
                           int columns = base::kTerminalColumns);

/// The same for programs: one JSON document; `ways` may be empty.
std::string axial_json(const layout::AxialBlock& block, int64_t element_bytes,
                       const std::vector<cost::TriangleCost>& ways = {});

/// An SVG of the layouts: a square for each operation before and after it, the parts of ranks in colours.
std::string axial_svg(const layout::AxialBlock& block, int64_t element_bytes);

}  // namespace hanji::report
