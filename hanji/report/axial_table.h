#pragma once

#include <cstdint>
#include <string>

#include "hanji/layout/axial_block.h"

namespace hanji::report {

/// A line for each operation of the block: its layouts, the collective, the bytes that all ranks send, and
/// those of other ways; then sums and the memory of a rank.
std::string axial_table(const layout::AxialBlock& block, int64_t element_bytes);

/// The same for programs: one JSON document.
std::string axial_json(const layout::AxialBlock& block, int64_t element_bytes);

/// An SVG of the layouts: a square for each operation before and after it, the parts of ranks in colours.
std::string axial_svg(const layout::AxialBlock& block, int64_t element_bytes);

}  // namespace hanji::report
