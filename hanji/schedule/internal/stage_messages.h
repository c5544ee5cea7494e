#pragma once

#include <optional>

#include "hanji/schedule/pipeline_schedule.h"

namespace hanji::schedule::internal {

/// The send of what a computation makes; nothing if the stage that takes it is on the same rank, or
/// none does.
std::optional<Action> send_after(const PipelineSchedule& schedule, const Action& compute);
/// What must come before a computation on its rank: the receive of what it needs, or the computation
/// that makes it there (kBackwardInput for either kind of backward); nothing in the first stage's
/// forward, the last stage's backward and backward_weight.
std::optional<Action> source_of(const PipelineSchedule& schedule, const Action& compute);
/// The receive that a send meets, or the reverse.
Action other_end(const Action& message);

/// Adds sends, receives and reduces to lists of computations of which every pass is complete.
void add_messages(PipelineSchedule& schedule);

}  // namespace hanji::schedule::internal
