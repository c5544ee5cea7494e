#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/report/run_records.h"

namespace hanji::report {

/// Steps of a run, counted from 1, both ends included.
struct StepRange {
  int64_t first = 1;
  int64_t last = std::numeric_limits<int64_t>::max();
};

/// "101-200", "101-" up to the last, "-100" from the first.
/// Errors  invalid_argument for other text, and where the first is above the last.
Result<StepRange> parse_steps(std::string_view text);

/// The run as if it had had these steps only; an account of several steps counts where all of them lie within.
RunRecords only_steps(RunRecords run, const StepRange& range);

/// A step, or several that follow each other, of which all ranks have an account.
struct StepLine {
  int64_t step = 0;                       ///< The last of them.
  int64_t steps = 1;                      ///< So many.
  std::vector<const StepAccount*> ranks;  ///< In the order of RunRecords::ranks, which owns them.
};

/// What all ranks have done, without step 1, which warms up. A rank that is a step ahead of others counts up to theirs.
/// Order   as long as `run` lives.
std::vector<StepLine> step_lines(const RunRecords& run);

/// What a step is divided into.
enum class StepPart : uint8_t { kStep, kCompute, kData, kTransfer, kSkew };

/// Its name in tables: "step", "compute", "samples", "moving bytes", "waiting".
std::string_view name_of(StepPart part);

/// Seconds of a step; nothing where the engine does not tell.
std::optional<double> seconds_of(const StepAccount& account, StepPart part);

using Series = std::vector<double>;

/// Seconds of each line: the mean over ranks, or those of one. Empty unless all accounts tell them.
Series series_of(const std::vector<StepLine>& lines, StepPart part,
                 std::optional<size_t> rank = {});
/// The same of the calls of one axis: kTransfer or kSkew. A rank without calls there has 0.
Series axis_series(const std::vector<StepLine>& lines, StepPart part, std::string_view axis);

/// CPU time of all ranks over the seconds that they computed; 1 where computing is not told.
double cpu_share(const std::vector<StepLine>& lines);
/// Ranks with less had no core of their own all the time.
inline constexpr double kLeastCpuShare = 0.9;

}  // namespace hanji::report
