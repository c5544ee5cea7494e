#pragma once

#include <string>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/report/run_records.h"
#include "hanji/report/scaling_law.h"

namespace hanji::report {

/// What was measured on a number of ranks.
struct ScalingSize {
  ScalingPoint point;
  int runs = 0;
  int64_t steps = 0;
  double speed_up = 0;    ///< Against one rank, measured or, without such a run, by the law.
  double cpu_share = 1;   ///< CPU time over the seconds that ranks computed.
  bool is_fitted = true;  ///< false: ranks outnumber cores, which says nothing of the job.
};

/// Speed-ups of a number of ranks.
struct ScalingForecast {
  int ranks = 1;
  double speed_up = 1;
  Interval interval;
  double bound = 1;  ///< Without communication, by Amdahl or Gustafson.
};

/// How a job scales.
struct ScalingStudy {
  std::string job;  ///< "nano, float32, 1 thread a rank"
  BatchRule batch = BatchRule::kFixed;
  int64_t global_batch = 0;  ///< Samples of a step of the fewest ranks.
  bool has_parts = true;     ///< The engine tells transfer from waiting.
  std::vector<ScalingSize> sizes;
  ScalingLaw law;
  std::vector<ScalingForecast> curve;  ///< From 1 to twice the most ranks that were fitted.
  std::vector<std::string>
      doubts;            ///< Why the law does not hold; empty: nothing speaks against it.
  std::string sentence;  ///< The verdict, for people.

  const ScalingForecast& forecast() const { return curve.back(); }
};

/// Fits the runs of one job on different numbers of ranks; several of one number count together.
///
/// Result  doubts where a fitted size is off by more than kMaxMiss, as where cores share memory bandwidth, and where
///         ranks outnumber cores on all but one size.
/// Errors  invalid_argument with a line for every mistake: fewer than two numbers of ranks, runs of other jobs, kernels
///         or numbers of threads, fewer than kMinSteps steps, batches that are neither equal nor grow with the ranks.
Result<ScalingStudy> study_scaling(const std::vector<RunRecords>& runs);
inline constexpr double kMaxMiss = 0.05;

/// At most 40 lines for up to eight numbers of ranks: the law, the verdict, a table, and speed-ups as bars.
std::string scaling_text(const ScalingStudy& study, int columns = base::kTerminalColumns);
/// Measured and predicted speed-up as a standalone SVG.
std::string scaling_svg(const ScalingStudy& study);

/// The format of scaling_json(): raised when a member changes its meaning or goes.
inline constexpr int kScalingFormat = 1;
std::string scaling_json(const ScalingStudy& study);

}  // namespace hanji::report
