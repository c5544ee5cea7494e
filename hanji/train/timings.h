#pragma once

#include <optional>
#include <vector>

#include "hanji/train/loop.h"

namespace hanji::train {

/// Seconds per step of one rank: medians over all steps without the first, which is a warm-up.
struct Timings {
  double step_median = 0;
  double step_p90 = 0;
  double data = 0;
  double sample = 0;  ///< Seconds a sample of a thread that reads; 0: this rank has read none.
  /// The step without data, exposed transfer and skew; includes these if the engine does not measure
  /// them.
  double compute = 0;
  std::optional<CallSeconds> calls = {};
};

/// Medians of collectives use only the steps that have them; older logs do not.
Timings timings_of(const std::vector<StepSeconds>& steps);

}  // namespace hanji::train
