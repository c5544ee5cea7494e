#pragma once

#include <cstdint>
#include <vector>

#include "hanji/layout/server.h"
#include "hanji/plan/plan.h"

namespace hanji::plan {

/// The sharding of a run with parallel.data = server: every rank computes, and serves a range.
struct ServerPlan {
  layout::ServerShares shares;
  layout::FlatLayout flat;
  int64_t element_bytes = 4;
  std::vector<int>
      parts;  ///< Buffers that each rank pushes: 1, or for stable bits its subtrees of grains.
  int64_t num_partials = 0;  ///< Of all ranks together.
};

/// `sizes`: of the parameters; `ranks`: their number; `owners`: of grains for stable bits, else empty.
ServerPlan serve_model(const std::vector<int64_t>& sizes, int64_t element_bytes, int ranks,
                       const std::vector<layout::Range>& owners);

/// The maximum size of messages with gradients and weights.
int64_t message_bytes(const CommConfig& comm);

/// Bytes of model state of one rank. The first rank's part of the heap has the optimizer's moments of
/// all ranks; each server updates those of its range.
///
/// Result  with P bytes of parameters and R of the rank's range: parameters P, gradients
///         `num_buffers` P + R, staging two messages per buffer that is pushed, optimizer 2 P on
///         rank 0.
std::vector<MemoryLine> server_lines(const ServerPlan& plan, int rank, int64_t num_buffers,
                                     int64_t bytes_per_message);

}  // namespace hanji::plan
