#pragma once

#include <string>

#include "hanji/report/operations.h"

namespace hanji::report {

/// Draws the operations of profiled steps under the roof of their rank: flop/byte across, flop/s up, both logarithmic;
/// a point's area is its share of the time, its number its place in operations_text(). Points above the roof are
/// drawn where they are, and differ by their outline. Operations without flops have no place in it; a line says what
/// part of the time they take.
///
/// Result  an <svg> element for HTML that takes the page's colours (currentColor, and classes roof, point, above); a
///         sentence in place of it where there is no roof or no operation with flops. The same record, the same bytes.
std::string roofline_svg(const OperationsRecord& record);

}  // namespace hanji::report
