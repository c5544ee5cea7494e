#pragma once

#include <string>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/report/run_records.h"
#include "hanji/report/step_timeline.h"
#include "hanji/report/verdict.h"

namespace hanji::report {

/// The format of to_json(RunRecords): raised when a member changes its meaning or goes.
inline constexpr int kReportFormat = 1;

/// Where the time of a run goes, for people: what ran, the verdict, seconds by rank, calls by axis and routine, waits,
/// and plan beside run. At most 40 lines for up to kMaxRanksShown ranks; of more ranks, those that differ most.
std::string run_report(const RunRecords& run, int columns = base::kTerminalColumns);
inline constexpr size_t kMaxRanksShown = 8;
/// The ranks that wait shortest and longest where there are more than kMaxRanksShown; ascending.
std::vector<StepParts> shown_parts(std::vector<StepParts> parts);

/// The same for programs, as one JSON document; seconds are means of a step, but for those of `timelines`.
/// What was not measured is null.
std::string run_report_json(const RunRecords& run, const std::vector<StepTimeline>& timelines = {});

/// Lines for the end of a run: the verdict, the command that shows more, and the one that measures the efficiency.
std::string verdict_lines(const RunRecords& run);

}  // namespace hanji::report
