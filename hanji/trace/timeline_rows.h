#pragma once

#include <vector>

#include "hanji/trace/event.h"

namespace hanji::trace {

/// The row of each event within its lane, 0 where the spans of the lane nest: viewers draw spans of one row that
/// overlap otherwise in wrong places. Calls that are under way at the same time get a row each.
///
/// Units   ends of events count in whole microseconds, as to_us() gives them.
/// Cost    n log n, times the number of rows.
std::vector<int> rows_of(const std::vector<Event>& events);

}  // namespace hanji::trace
