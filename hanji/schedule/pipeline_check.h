#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hanji/schedule/pipeline_schedule.h"

namespace hanji::schedule {

/// What ranks of equal stages idle beyond their work, over that work, if a backward takes twice a
/// forward, its parts one each, and messages take no time; nothing where no closed form holds.
///
/// Source  (p-1)/m of gpipe and 1f1b, (p-1)/(vm) of looping ones: arXiv 2104.04473, 2.2; zero bubble:
///         (p-1)(F+B-W): arXiv 2401.10241, table 2.
std::optional<double> bubble_formula(PipelineKind kind, const PipelineShape& shape);

/// The most forwards of a rank that wait for their backward, or backward_weight, at once: gpipe m,
/// 1f1b min(p - r, m). Nothing where no closed form holds.
std::optional<int64_t> in_flight_formula(PipelineKind kind, const PipelineShape& shape, int rank);

/// The same, counted in a rank's list.
int64_t max_in_flight(const ActionList& actions);

/// The passes without forward, without backward, or with half of one: "rank 1 lacks backward_weight
/// of stage 1, micro-batch 3". Also actions of stages that are another rank's.
std::vector<std::string> incomplete_passes(const PipelineSchedule& schedule);

/// Proves a schedule: each rank's list is in order (check(ActionList)); every pass of every stage has
/// its forward and its backward, on the stage's rank, and every stage its reduce; what a computation
/// needs is there before it, by a message or on the same rank; every send meets a receive, in the same
/// order at both ends of a pair of ranks; no receive stands before an action that needs neither it nor
/// a later message of the same sender; the ranks end with `buffered_messages` per pair; activations in
/// flight and bubble equal the closed formulas if the kind has them.
///
/// Cost    O(a log a) for a actions.
/// Errors  invalid_argument, naming the first wrong action with its rank, stage and micro-batch.
Status check(const PipelineSchedule& schedule, int64_t buffered_messages);

}  // namespace hanji::schedule
