#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/report/run_records.h"

namespace hanji::report {

/// Seconds of a step of one rank, or their mean. Compute, data, exposed transfer and skew add up to `seconds`.
struct StepParts {
  int rank = 0;
  double seconds = 0;
  double compute = 0;
  double data = 0;
  double exposed_transfer = 0;
  double skew = 0;
  double cpu = 0;     ///< CPU time, beside those.
  double faults = 0;  ///< Pages that came from a disk.
};

/// The parts of all ranks in a line of their accounts: of one step, or the mean of some.
struct LineParts {
  std::vector<StepParts> ranks;
  int64_t steps = 0;
};

/// The parts of step_lines(). Empty unless accounts of all ranks lie here, have a step in common and tell transfer from
/// skew: why_no_lines() says what is missing.
std::vector<LineParts> lines_of(const RunRecords& run);
std::string why_no_lines(const RunRecords& run);

int64_t steps_of(const std::vector<LineParts>& lines);

/// The mean over steps of what `of` says of a line.
template <class Of>
double mean_over(const std::vector<LineParts>& lines, const Of& of) {
  double sum = 0;
  for (const LineParts& line : lines) sum += static_cast<double>(line.steps) * of(line);
  return sum / static_cast<double>(steps_of(lines));
}
/// The mean over ranks.
double mean_of(const LineParts& line, double StepParts::*part);

/// The mean step of each rank; empty as lines_of().
std::vector<StepParts> mean_parts(const std::vector<LineParts>& lines);
std::vector<StepParts> mean_parts(const RunRecords& run);

}  // namespace hanji::report
