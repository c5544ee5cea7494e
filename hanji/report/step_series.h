#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hanji/report/run_records.h"

namespace hanji::report {

/// The most columns of a series: one each for so many steps, several steps each beyond.
inline constexpr int64_t kSeriesColumns = 640;

/// The steps of one column of a picture. Units: seconds of a step; bytes.
struct SeriesColumn {
  int64_t column = 0;  ///< In [0, num_columns()).
  double shortest = 0;
  double longest = 0;  ///< The step of these parts.
  double data = 0;
  std::optional<double> exposed_transfer = {};
  std::optional<double> skew = {};
  int64_t least_memory = 0;  ///< Bytes of tensors after a step.
  int64_t most_memory = 0;
};

/// The steps of one rank but the first, which warms up.
struct RankSeries {
  int rank = 0;
  std::vector<SeriesColumn>
      columns;  ///< Ascending; those of which nothing is recorded are left out.
};

/// Columns for so many steps.
int64_t num_columns(int64_t steps);
/// The column of a step, counted from 1.
int64_t column_of(int64_t step, int64_t steps);

/// Columns of a run of `steps` steps. An account of several steps counts as so many like their mean.
RankSeries series_of(const RankSteps& rank, int64_t steps);

/// The last step that any rank has recorded.
int64_t last_step(const RunRecords& run);

/// The smallest and the largest value of each column that has any.
struct CurveColumn {
  int64_t column = 0;
  double least = 0;
  double most = 0;
};
std::vector<CurveColumn> curve_of(const std::vector<TrainingLog::Point>& points, int64_t steps);

}  // namespace hanji::report
