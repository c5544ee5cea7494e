#pragma once

#include <string>

#include "hanji/report/run_records.h"

namespace hanji::report {

/// A line on what more ranks brought, which begins as others of the report: the efficiency of summary.json where a run
/// of the job on one rank was known, else the command that measures it. Empty for one rank.
std::string efficiency_line(const RunRecords& run);

/// For the end of a run: the command, where no run on one rank was known; else empty.
std::string efficiency_hint(const RunRecords& run);

}  // namespace hanji::report
