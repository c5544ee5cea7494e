#pragma once

#include <string>
#include <vector>

#include "hanji/report/run_records.h"
#include "hanji/report/step_timeline.h"

namespace hanji::report {

/// The report of a run as one HTML file: the verdict, what ran, one step of all ranks, seconds by part, rate, loss,
/// memory, communication, plan against run, faults. It needs no network and no scripts, which its own policy
/// forbids, follows the reader's light or dark scheme, and prints.
///
/// Result  a function of the arguments alone: the same records give the same bytes, in any locale and at any time.
///         Below 2 MB for 1,000 steps of 8 ranks; of more ranks, those that differ most.
std::string report_page(const RunRecords& run, const std::vector<StepTimeline>& timelines);

}  // namespace hanji::report
