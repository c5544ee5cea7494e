#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hanji::compute {

/// The part of a tensor that is here where an axis cuts it along a dimension that is not the samples'.
struct DropoutPart {
  int64_t dim = 0;    ///< As a tensor's, also from the end.
  int64_t begin = 0;  ///< The first index along `dim` that is here.
  int64_t whole = 0;  ///< Size of the whole along `dim`; 0: all of it is here.
};

/// Names one dropout of one step. `first_sample` is the number, within the step, of row 0.
struct DropoutKey {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sample = 0;
  int64_t layer = 0;  ///< Different for every place in the model that drops.
  DropoutPart part = {};
};

/// Ones and zeros, scaled: 0 with `probability`, else 1/(1-probability).
///
/// Shape   sizes [B, ...]; row b belongs to sample key.first_sample + b.
/// Result  element e of a sample depends on (seed, step, sample, layer, e) alone: the mask is
///         the same however the samples are divided into batches and ranks. Elements are numbered in
///         the whole, so the mask of key.part is that part of the whole's mask.
/// Errors  throws Error(kInvalidArgument) for a part that does not lie in its whole.
/// Source  Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
at::Tensor dropout_mask(at::IntArrayRef sizes, double probability, const DropoutKey& key,
                        const at::TensorOptions& options);

/// x times its mask; x itself where probability is 0.
at::Tensor dropout(const at::Tensor& x, double probability, const DropoutKey& key);

}  // namespace hanji::compute
