#pragma once

#include <string>

#include "hanji/base/status.h"
#include "hanji/base/terminal.h"
#include "hanji/cost/compare.h"

namespace hanji::report {

/// What `hanji simulate` prints of one algorithm: each round with who sends to whom, and in a
/// broadcast how many ranks have everything after it. Long lists are cut and say so.
std::string timeline_text(const cost::Answer& answer, const cost::Network& network);
/// {"algorithm", "segments", "seconds", "transfers": [[from, to, bytes, start, end], ...]}; of a list
/// that is kept as one rank's steps "longest_path" with the messages along it instead.
std::string timeline_json(const cost::Answer& answer);

/// The comparison of all algorithms: the table, the rounds of those that have few, pipelines by
/// segments, an all_reduce by its two halves, and below which sizes the others win.
/// Errors  as cost::answers().
Result<std::string> simulation_text(const cost::Question& question,
                                    int columns = base::kTerminalColumns);

}  // namespace hanji::report
