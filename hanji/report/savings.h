#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/report/run_records.h"
#include "hanji/report/step_parts.h"

namespace hanji::report {

/// What most of a step's loss is due to.
enum class Cause : uint8_t {
  kNotMeasured,    ///< The records do not tell.
  kCompute,        ///< Nearly all of the step is computing, and nothing would shorten it.
  kNothing,        ///< Losses, none of which is 80 % of them.
  kData,           ///< Waiting for samples.
  kCommunication,  ///< Moving bytes that no computation hides.
  kSlowRank,       ///< Ranks wait for some that compute longer than their work explains.
  kUnevenShares,   ///< Ranks wait for those that have more samples.
  kUnevenStages,   ///< Ranks of a pipeline wait for a stage with more work.
  kBubble,         ///< Ranks of a pipeline wait while it fills and drains.
  kMemory,  ///< What little memory costs: computing again, small micro-batches, pages from a disk.
  kStolenTime,  ///< Other processes took the CPUs of a rank.
};

/// "not_measured", "compute", "nothing", ...
std::string_view name_of(Cause cause);

/// What mending a cause saves of a step.
struct Saving {
  Cause cause = Cause::kNothing;
  std::vector<int> ranks = {};  ///< The ranks to look at, the worst first; may be empty.
  std::string where = {};  ///< The axis, or the routine in which the others wait; may be empty.
  std::optional<double> seconds = {};  ///< Absent: it was not measured.
  std::string sentence = {};           ///< For people, without the saving.
  bool is_planned =
      false;  ///< The plan has chosen it: a bubble, computing again, bytes that it predicted.
};

/// What mending each cause saves, and all of them together.
struct Savings {
  double step_seconds = 0;  ///< The step as it is replayed.
  double all = 0;           ///< What mending everything saves that is not planned.
  std::vector<Saving>
      causes;  ///< In no order, those above 0; those that were not measured have no seconds.
};

/// Replays the steps without each cause.
/// `lines`: those of the run, at least one.
Savings savings_of(const RunRecords& run, const std::vector<LineParts>& lines);

}  // namespace hanji::report
