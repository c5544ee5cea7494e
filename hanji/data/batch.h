#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "hanji/data/loader.h"
#include "hanji/data/samples.h"
#include "hanji/layout/range.h"

namespace hanji::data {

/// One micro-batch as tensors.
///
/// Shape   tokens and targets [B, T], int64, contiguous, on the CPU.
struct Batch {
  at::Tensor tokens;
  at::Tensor targets;
  layout::Range positions;  ///< The samples' places within the global batch: keys of counters.
  int64_t size() const { return positions.size(); }
};

/// Fills `batch` with the training samples at `positions` of the global batch of `step`.
/// Cost    the tensors of `batch` are used again when their shape fits: no allocation then.
/// Errors  throws Error(kCorrupt) for a token id beyond the vocabulary.
void read_batch(const TokenSamples& samples, const Loader& loader, int64_t step,
                layout::Range positions, Batch& batch);

/// Fills `batch` with places `positions` of an evaluation of `total` samples, spread evenly over
/// the validation part: the same samples whatever the number of ranks. `total` <= num_validation().
void read_validation_batch(const TokenSamples& samples, int64_t total, layout::Range positions,
                           Batch& batch);

}  // namespace hanji::data
