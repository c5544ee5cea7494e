#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/cli/capacity_options.h"
#include "hanji/cli/command_line.h"
#include "hanji/report/pipeline_chart.h"

namespace hanji::cli {

/// The flags of `simulate --schedule`, as they were typed.
struct PipelineOptions {
  std::string schedules;  ///< Empty: no pipeline was asked for.
  CapacityOptions model;  ///< Whose layers are cut into stages, if one was asked for.
  std::string times = "10ms/10ms/10ms";
  std::string svg, csv;
  int64_t micro_batches = 8;
  int64_t buffered_messages = 0;  ///< 0: any number.
  int virtual_stages = 2;
  int width = 0;  ///< 0: that of the terminal, else 100.

  /// Adds the flags. The object must outlive the parsing.
  void add_to(Verb verb);

  /// Each schedule, checked and simulated. Errors: throws Error that names the flag or file.
  std::vector<report::PipelineChart> charts(int ranks, double latency_seconds) const;
  /// Colour and width of the terminal, if stdout is one.
  report::ChartStyle style() const;
};

}  // namespace hanji::cli
