#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/report/pipeline_chart.h"

namespace hanji::report::internal {

struct PipelineFigures {
  std::vector<int64_t> in_flight;  ///< Forwards whose activations are kept, per rank.
  double ranks_in_flight = 0;      ///< The most, in layers of a whole rank.
  double idle_inside = 0;          ///< Over the work of the busiest rank.
  int64_t forward_messages = 0;
  int64_t backward_messages = 0;
  int64_t buffers = 0;  ///< Least buffered messages.
};

PipelineFigures figures_of(const PipelineChart& chart);
/// "1f1b: 4 ranks, 4 stages, 8 micro-batches, 330 ms, bubble 0.3750".
std::string title_of(const PipelineChart& chart);
/// Of each stage, how many of its rank's come before it.
std::vector<int> visits_of(const schedule::PipelineSchedule& schedule);

}  // namespace hanji::report::internal
