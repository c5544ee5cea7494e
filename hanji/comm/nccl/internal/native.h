#pragma once

#include "hanji/base/status.h"
#include "hanji/comm/internal/engine.h"
#include "hanji/comm/nccl/internal/library.h"

namespace hanji::comm::nccl {

/// Where calls of NCCL go.
struct Channel {
  const Library* library = nullptr;
  Comm comm = nullptr;
  Handle stream = nullptr;
  int rank = 0;
  int size = 1;
};

/// Launches a request by NCCL's own routines: those with blocks of different sizes, gather, scatter
/// and all_to_all as one group of sends and receives.
///
/// Order   called inside Stream::run(), for an all_to_all in place is copied first: `request` then
///         holds the copy, and outlives the launch.
/// Result  ok once it is on the stream; `barrier_token`, one byte on the device, carries a barrier.
Status launch_native(const Channel& channel, Request& request, void* barrier_token);

/// NCCL's number for an element type.
Type type_of(DType dtype);

}  // namespace hanji::comm::nccl
