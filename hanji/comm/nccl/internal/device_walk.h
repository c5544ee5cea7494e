#pragma once

#include "hanji/comm/internal/engine.h"
#include "hanji/comm/nccl/internal/native.h"

namespace hanji::comm::nccl {

/// Walks this rank's steps of a list on a device: messages by ncclSend and ncclRecv, those in a row
/// as one group; copies and reductions by torch's kernels, in the list's order, in float32 for
/// 16-bit elements, rounded where shm::rounding_of() says: the bits of shm::reduce().
///
/// Order   the list has passed comm::check_steps(); called inside Stream::run(), so that torch's
///         kernels go to the channel's stream.
Status walk(const Channel& channel, const Request& request, const schedule::StepList& list);

}  // namespace hanji::comm::nccl
