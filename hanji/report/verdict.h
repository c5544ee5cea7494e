#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/report/run_records.h"

namespace hanji::report {

/// Mean seconds of a step of one rank. They add up to `seconds`.
struct StepParts {
  int rank = 0;
  double seconds = 0;
  double compute = 0;
  double data = 0;
  double exposed_transfer = 0;
  double skew = 0;
  double cpu = 0;  ///< CPU time, beside those.
};

/// What most of a step's loss is due to.
enum class Cause : uint8_t {
  kNotMeasured,    ///< The records do not tell.
  kCompute,        ///< Nearly all of the step is computing, and no rank is slower than the others.
  kNothing,        ///< Losses, none of which is 80 % of them.
  kData,           ///< Waiting for samples.
  kCommunication,  ///< Moving bytes that no computation hides.
  kSlowRank,       ///< Ranks wait for one that computes longer.
  kUnevenStages,   ///< Ranks of a pipeline wait: stages of unlike length, and filling and draining.
  kStolenTime,     ///< Other processes took the CPUs of a rank.
};

/// "not_measured", "compute", "nothing", ...
std::string_view name_of(Cause cause);

struct Verdict {
  Cause cause = Cause::kNotMeasured;
  int rank = -1;      ///< The one to look at; -1: none.
  std::string where;  ///< The axis, or the routine in which the others wait; may be empty.
  double step_seconds = 0;
  double lost_seconds = 0;    ///< Seconds of a step, by all causes together.
  double saving_seconds = 0;  ///< What mending this cause saves of a step.
  std::string sentence;       ///< For people.
};

/// Fewer steps are no measurement.
inline constexpr int64_t kMinSteps = 20;
/// A cause is named if mending it saves so much of what mending all would.
inline constexpr double kMinShareOfLoss = 0.8;

/// The mean step of each rank, without the first step, which warms up. Empty unless accounts of all ranks have the
/// same steps and tell transfer from skew.
std::vector<StepParts> mean_parts(const RunRecords& run);

/// The floating operations of the model's products in a step, over what the ranks' kernels would do meanwhile at the
/// rates that were measured for the plan; 0: no rate is known.
double products_rate(const RunRecords& run, double step_seconds);

/// Names what costs most of a step, and what mending it saves.
///
/// Result  a rank is slow if it is the last to have computed in more steps than chance allows once in a thousand
///         runs (binomial, Bonferroni over ranks); mending it saves the mean of what it is behind the next one.
/// Source  steps of all ranks are compared within the same step, where noise of the machine is common to them.
Verdict judge_run(const RunRecords& run);

}  // namespace hanji::report
