#pragma once

#include <string>
#include <vector>

#include "hanji/report/run_facts.h"
#include "hanji/report/run_records.h"
#include "hanji/report/step_timeline.h"

namespace hanji::report::internal {

/// Sections of a page, each with its heading; what was not measured is said.

/// The timelines, of `ranks` ranks in all.
std::string timelines_section(const std::vector<StepTimeline>& timelines, size_t ranks);
/// Mean seconds by part and rank, and over steps.
std::string seconds_section(const RunRecords& run);
/// Calls by axis and by routine.
std::string communication_section(const RunRecords& run);
/// The roofline and the longest operations of the first rank that was profiled; nothing without.
std::string operations_section(const RunRecords& run);
/// Plan against run.
std::string comparison_section(const OutcomeFacts& outcome);
/// Faults, warnings, checkpoints.
std::string faults_section(const RunRecords& run, const OutcomeFacts& outcome);

}  // namespace hanji::report::internal
