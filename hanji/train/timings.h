#pragma once

#include <vector>

#include "hanji/trace/recorder.h"
#include "hanji/train/loop.h"

namespace hanji::train {

/// Seconds per step of one rank: medians over all steps but the first, which warms up.
struct Timings {
  double step_median = 0;
  double step_p90 = 0;
  double data = 0;
  double compute = 0;                ///< Of the step, what is neither data nor waiting.
  double communication = 0;          ///< At least one collective was under way.
  double exposed_communication = 0;  ///< The step waited for one.
};

/// `recorder` may be null; then communication is what was exposed.
Timings timings_of(const std::vector<StepSeconds>& steps, const trace::Recorder* recorder);

}  // namespace hanji::train
