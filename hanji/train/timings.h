#pragma once

#include <optional>
#include <vector>

#include "hanji/train/loop.h"

namespace hanji::train {

/// Seconds per step of one rank: medians over all steps but the first, which warms up.
struct Timings {
  double step_median = 0;
  double step_p90 = 0;
  double data = 0;
  /// Of the step, what is neither data nor exposed transfer nor skew; where the engine cannot tell
  /// these, they are in it.
  double compute = 0;
  std::optional<CallSeconds> calls = {};
};

/// Of the collectives' seconds only steps count that have them: older logs tell none.
Timings timings_of(const std::vector<StepSeconds>& steps);

}  // namespace hanji::train
