#pragma once

#include <string>
#include <vector>

#include "hanji/plan/memory.h"

namespace hanji::plan {

/// The memory of one rank or one host.
struct MemoryBar {
  std::string label;
  std::vector<MemoryLine> lines;
};

/// Stacked bars on one scale, one row each: a letter per category in the order of the first bar's
/// lines, the key below. Categories without bytes are left out.
///
/// Shape   every bar has the same categories in the same order.
/// Result  ASCII, at most 80 columns. With `limit_bytes` > 0 a '|' marks the end of memory.
std::string bars_text(const std::vector<MemoryBar>& bars, int64_t limit_bytes);

/// The same as a standalone SVG.
std::string bars_svg(const std::vector<MemoryBar>& bars, int64_t limit_bytes);

}  // namespace hanji::plan
