#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hanji/report/run_records.h"
#include "hanji/report/savings.h"

namespace hanji::report {

struct Verdict {
  Cause cause = Cause::kNotMeasured;
  int rank = -1;      ///< The one to look at; -1: none.
  std::string where;  ///< The same as in Saving.
  double step_seconds = 0;
  double lost_seconds =
      0;  ///< What mending all causes saves of a step that its plan has not chosen.
  std::optional<double>
      saving_seconds;    ///< What mending this cause saves; absent: nothing, or nobody measured it.
  std::string sentence;  ///< For people.
  std::vector<Saving> causes;  ///< All that save 1 % of a step, the largest first.
};

/// Fewer steps are no measurement.
inline constexpr int64_t kMinSteps = 20;
/// A cause is named if mending it saves so much of what mending all that are worth it would, one by one.
inline constexpr double kMinShareOfLoss = 0.8;

/// The floating operations of the model's products in a step, over what the ranks' kernels would do meanwhile at the
/// rates that were measured for the plan; 0: no rate is known.
double products_rate(const RunRecords& run, double step_seconds);

/// Names what costs most of a step, and what mending it saves: steps are replayed without it.
///
/// Errors  none: a run that does not tell has the cause kNotMeasured, and a sentence that says why.
Verdict judge_run(const RunRecords& run);

}  // namespace hanji::report
