#include "hanji/report/step_series.h"

#include <algorithm>

namespace hanji::report {
namespace {

SeriesColumn column_from(const StepAccount& one, int64_t column) {
  const auto steps = static_cast<double>(one.steps);
  SeriesColumn made{.column = column,
                    .shortest = one.seconds / steps,
                    .longest = one.seconds / steps,
                    .data = one.data / steps,
                    .least_memory = one.memory_bytes,
                    .most_memory = one.memory_bytes};
  if (one.exposed_transfer) made.exposed_transfer = *one.exposed_transfer / steps;
  if (one.skew) made.skew = *one.skew / steps;
  return made;
}

void join(SeriesColumn& known, SeriesColumn more) {
  more.shortest = std::min(known.shortest, more.shortest);
  more.least_memory = std::min(known.least_memory, more.least_memory);
  more.most_memory = std::max(known.most_memory, more.most_memory);
  if (known.longest < more.longest) {
    known = more;
    return;
  }
  known.shortest = more.shortest;
  known.least_memory = more.least_memory;
  known.most_memory = more.most_memory;
}

}  // namespace

int64_t num_columns(int64_t steps) { return std::min(kSeriesColumns, steps); }

int64_t column_of(int64_t step, int64_t steps) { return (step - 1) * num_columns(steps) / steps; }

RankSeries series_of(const RankSteps& rank, int64_t steps) {
  RankSeries series{.rank = rank.rank};
  for (size_t i = 1; i < rank.accounts.size(); ++i) {
    const StepAccount& one = rank.accounts[i];
    const int64_t last = column_of(one.step, steps);
    for (int64_t c = column_of(one.step - one.steps + 1, steps); c <= last; ++c) {
      if (!series.columns.empty() && series.columns.back().column == c) {
        join(series.columns.back(), column_from(one, c));
      } else {
        series.columns.push_back(column_from(one, c));
      }
    }
  }
  return series;
}

int64_t last_step(const RunRecords& run) {
  int64_t steps = 0;
  for (const RankSteps& rank : run.ranks) {
    if (!rank.accounts.empty()) steps = std::max(steps, rank.accounts.back().step);
  }
  return steps;
}

std::vector<CurveColumn> curve_of(const std::vector<TrainingLog::Point>& points, int64_t steps) {
  std::vector<CurveColumn> curve;
  for (const auto& [step, value] : points) {
    if (step < 1 || step > steps) continue;
    const int64_t column = column_of(step, steps);
    if (curve.empty() || curve.back().column != column) curve.push_back({column, value, value});
    curve.back().least = std::min(curve.back().least, value);
    curve.back().most = std::max(curve.back().most, value);
  }
  return curve;
}

}  // namespace hanji::report
