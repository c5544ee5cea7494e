#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/schedule/operation.h"

namespace hanji::parallel {

/// A bucket with all gradients of this rank. The contents of `flat` after the hook are the result.
struct GradientBucket {
  size_t index = 0;                   ///< In launch order, the same on every rank.
  at::Tensor flat;                    ///< All of it, padding (zeros) included.
  std::vector<at::Tensor> gradients;  ///< Pieces of `flat`, each shaped like its parameter.
  /// The required result in `flat`: kAvg, the mean over the ranks, or kSum.
  schedule::ReduceOp op = schedule::ReduceOp::kAvg;
  /// For CallOptions::tag: no other bucket, of this handle or another, has the same on the group.
  uint64_t tag = 0;
};

/// Reduces the gradients of a bucket over all ranks in data_parallel(). Buckets begin in the same
/// order on all ranks, during backward; they finish in that order.
///
/// For your own hook, set `begin` and, for work after the communication, `finish`; both may call
/// collectives of the group. Replicas remain identical if the result has the same bits on all ranks.
/// A hook that keeps values from step to step also sets `fresh`, or serves one handle only.
struct CommunicationHook {
  std::string name;
  /// The loss of the gradients, for the error if a hook is rejected.
  std::string cost_in_bits;
  std::function<comm::Work(GradientBucket&, const comm::Group&)> begin;
  /// Called once the Work of begin() is complete; may be empty.
  std::function<void(GradientBucket&, const comm::Group&)> finish;
  /// Makes the same hook with no values of earlier steps: data_parallel() calls it, so that handles and
  /// ranks that were given one hook share none. Empty: the hook is used as it is.
  std::function<CommunicationHook()> fresh = {};

  explicit operator bool() const { return begin != nullptr; }
};

/// Sends gradients in 16 bits, divided by the number of ranks before if they are averaged.
///
/// Result  relative to sum_r |g_r|: fp16 2^-11 (bf16 2^-8) for each of a rank's value and the sum; an
///         absolute 2^-25 per rank if fp16 underflows; beyond 65504 fp16 overflows to infinity.
/// Cost    half the bytes of float32, one more buffer of 16 bits per bucket.
/// Errors  data_parallel() throws kUnsupported for parameters of 16 bits, here and below.
CommunicationHook fp16_hook();
CommunicationHook bf16_hook();

/// Each rank sends its `fraction` largest values of a bucket and adds the other values to its
/// gradients of the next step (error feedback).
///
/// Cost    (4 + element bytes) * fraction per element in an all_gather, a residual per rank.
/// Errors  throws kInvalidArgument unless 0 < fraction <= 1.
/// Source  Stich et al., Sparsified SGD with Memory, NeurIPS 2018, algorithm 1.
CommunicationHook top_k_hook(double fraction);

struct PowerSgdOptions {
  int64_t rank = 4;
  uint64_t seed = 0;
};

/// Sends matrices as a product of two with `rank` columns, from one step of the power method that
/// continues the last one, with error feedback. Sends vectors, and matrices that would not become
/// smaller, uncompressed.
///
/// Cost    rank * (rows + columns) elements per matrix instead of rows * columns, in two
///         all_reduces; a residual per rank. Replicas remain identical on identical processors: each
///         rank computes the products.
/// Errors  throws kInvalidArgument for a rank below 1.
/// Source  Vogels et al., PowerSGD, NeurIPS 2019, algorithms 1 and 2.
CommunicationHook power_sgd_hook(const PowerSgdOptions& options = {});

}  // namespace hanji::parallel
