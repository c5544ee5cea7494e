#pragma once

#include <string>
#include <vector>

#include "hanji/report/run_facts.h"
#include "hanji/report/run_records.h"
#include "hanji/report/step_timeline.h"

namespace hanji::report::internal {

/// Pictures of a page: each an <svg> with a name, 720 wide, on the background of the page. They use the classes of
/// picture_classes() alone.

/// A row for each rank: what it did, and below it, thinner, its collectives from call to result.
std::string timeline_picture(const StepTimeline& timeline);

/// Steps of ranks as strips on one scale: of each column of steps the longest, from the bottom up computing, samples,
/// bytes, waits.
struct StripsPicture {
  std::string svg;
  double scale_seconds = 0;  ///< Seconds of the height of a strip.
  double longest_seconds = 0;
  bool is_told =
      true;  ///< False: the engine tells computing, moving bytes and waiting for ranks apart nowhere.
  int64_t beyond = 0;  ///< Columns that are longer than the scale, cut and marked.
};
StripsPicture strips_picture(const RunRecords& run, const std::vector<int>& ranks);

/// Train and validation loss over steps; empty without two steps.
std::string loss_picture(const RunRecords& run);

/// Bytes of tensors after each step, least and most of all ranks, against the plan; empty without accounts.
std::string memory_picture(const RunRecords& run, const OutcomeFacts& outcome);

}  // namespace hanji::report::internal
