#pragma once

#include <span>
#include <string>

#include "hanji/schedule/pipeline_schedule.h"
#include "hanji/schedule/pipeline_timeline.h"

namespace hanji::report {

/// A schedule that check() accepts, and the time of its actions.
struct PipelineChart {
  std::string name;
  schedule::PipelineSchedule schedule;
  schedule::PipelineTimeline timeline;
};

struct ChartStyle {
  int width = 100;  ///< Columns of a line.
  bool colour = false;
};

/// One Gantt chart below the other on one scale: a row per rank, time to the right, each computation
/// with its micro-batch (its last digit where there is no room) and a fill that says what it is; ASCII.
/// Charts that do not fit the width at two columns per forward go on below. Then a table: seconds,
/// bubble, idle time between work, activations in flight, messages, buffers needed.
std::string to_text(std::span<const PipelineChart> charts, const ChartStyle& style);
/// {"schedules": [...]}: the table's figures, "rank_of_stage", and "ranks", each with "actions" in
/// PyTorch's notation, "begin" and "end" in seconds.
std::string to_json(std::span<const PipelineChart> charts);
/// The charts as a standalone SVG.
std::string to_svg(std::span<const PipelineChart> charts);

}  // namespace hanji::report
