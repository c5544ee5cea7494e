#pragma once

#include <string_view>

#include "hanji/base/status.h"
#include "hanji/layout/range.h"

namespace hanji::plan {

/// The most steps that are profiled at once: their operations lie in memory.
inline constexpr int64_t kMaxProfiledSteps = 100;

/// Reads train.profile: "steps 10-12", "step 10", or the numbers alone, which count steps from 1.
///
/// Result  [9, 12) for the first: steps by how many are done before them; an empty range for an empty text.
/// Errors  invalid_argument, to follow the name of the key: "is \"steps 12-10\", whose ...".
Result<layout::Range> profiled_steps(std::string_view text);

}  // namespace hanji::plan
