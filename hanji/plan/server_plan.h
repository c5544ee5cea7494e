#pragma once

#include <cstdint>
#include <vector>

#include "hanji/layout/server.h"
#include "hanji/plan/plan.h"

namespace hanji::plan {

/// How a run with parallel.data = server is shared out: every rank computes, and serves a range.
struct ServerPlan {
  layout::ServerShares shares;
  layout::FlatLayout flat;
  int64_t element_bytes = 4;
  std::vector<int>
      parts;  ///< Buffers that each rank pushes: 1, or in stable its subtrees of grains.
  int64_t num_partials = 0;  ///< Of all ranks together.
};

/// `sizes`: of the parameters; `ranks`: how many; `owners`: of grains where bits are stable, else empty.
ServerPlan serve_model(const std::vector<int64_t>& sizes, int64_t element_bytes, int ranks,
                       const std::vector<layout::Range>& owners);

/// Gradients and weights travel in messages of at most so many bytes.
int64_t message_bytes(const CommConfig& comm);

/// Bytes of the states of one rank. The optimizer's moments lie once for all, in the first rank's
/// part of the heap, each server writing those of its range.
///
/// Result  with P bytes of parameters and R of the rank's range: parameters P, gradients
///         `num_buffers` P + R, staging two messages per buffer that is pushed, optimizer 2 P on
///         rank 0.
std::vector<MemoryLine> server_lines(const ServerPlan& plan, int rank, int64_t num_buffers,
                                     int64_t bytes_per_message);

}  // namespace hanji::plan
