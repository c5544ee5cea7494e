#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "hanji/schedule/pipeline_schedule.h"

namespace hanji::schedule {

/// Of one micro-batch; a whole backward takes both of its parts.
struct StageSeconds {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double whole() const { return forward + backward_input + backward_weight; }
  bool operator==(const StageSeconds&) const = default;
};

struct PipelineTimes {
  std::vector<StageSeconds> stages;  ///< One per stage; empty: 1 s each.
  double latency_seconds = 0;        ///< Of a message; it keeps no rank busy.
  /// More than that, of a message between each stage and the next, either way; empty: none.
  std::vector<double> messages = {};
  /// Messages from one rank to another that may be sent and not received; a send waits for a place.
  int64_t buffered_messages = std::numeric_limits<int64_t>::max();
};

/// When an action begins and ends. A message begins when its rank comes to it; waiting included.
struct ActionSpan {
  double begin = 0;
  double end = 0;
};

struct PipelineTimeline {
  std::vector<std::vector<ActionSpan>> ranks;  ///< As in the schedule.
  double seconds = 0;                          ///< Until the last rank is done.
  double busiest_seconds = 0;                  ///< Computing, of the rank that computes longest.
  /// Idle time of the rank that idles most between its first and its last computation.
  double idle_inside_seconds = 0;

  /// Time beyond what the busiest rank computes, over the latter.
  double bubble() const { return busiest_seconds > 0 ? seconds / busiest_seconds - 1 : 0; }
};

/// Runs a schedule in given times, each rank by itself, waiting only for messages.
///
/// Result  the same for the same values; whether it ends does not depend on times or latency, because
///         ranks take their actions in order and a message waits for one place or one sender.
/// Cost    linear in the actions.
/// Errors  invalid_argument if no rank can go on: names the action at which each is; or if
///         `times.stages` is neither empty nor one per stage.
Result<PipelineTimeline> simulate(const PipelineSchedule& schedule, const PipelineTimes& times);

/// The least `buffered_messages` with which a schedule ends that does with any number; 0 if it has no
/// messages.
/// Cost    simulates it 2 log2 of that number times.
/// Errors  throws Error of a schedule that never ends.
int64_t least_buffered_messages(const PipelineSchedule& schedule);

}  // namespace hanji::schedule
