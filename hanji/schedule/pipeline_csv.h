#pragma once

#include <string>
#include <string_view>

#include "hanji/schedule/pipeline_schedule.h"

namespace hanji::schedule {

/// An action in PyTorch's notation: stage, kind, micro-batch. "0F2" is forward, B, I and W are
/// backward, backward_input and backward_weight; "0SEND_F2", "1RECV_B2", "0REDUCE_GRAD".
std::string to_code(const Action& action);

/// The computations of a schedule: a line per rank, codes with commas between them. PyTorch's
/// `_load_csv` reads it.
std::string to_csv(const PipelineSchedule& schedule);

/// Reads the computations of all ranks, and adds messages and reduces to them. A cell may be empty
/// (idle), or "(0F2;3B0)OVERLAP_F_B", which is read as its computations in turn. The ranks of the
/// stages and the numbers of stages and micro-batches follow from the lines. check() tells whether
/// the ranks end.
/// Errors  corrupt, with all mistakes, a line each: cells that are no computation, stages on two ranks,
///         passes that are incomplete or out of order.
Result<PipelineSchedule> pipeline_from_csv(std::string_view text);

}  // namespace hanji::schedule
