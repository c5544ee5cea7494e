#pragma once

#include "hanji/parallel/tensor/axis.h"
#include "hanji/parallel/tensor/blocks.h"
#include "hanji/parallel/tensor/typed.h"

namespace hanji::parallel::tensor {

/// compute::cross_entropy_sum of logits that the axis cuts by columns of the vocabulary. No rank sees
/// all of a row: the largest logit, the sum of exponentials and the target's logit are reduced.
///
/// Shape   logits [N, V / ranks] contiguous, targets [N] int64, `columns` those of each rank
///         -> scalar, fp32 (fp64 for fp64 logits).
/// Result  equal on all ranks; rows in fp32 (fp64), summed in fp64 in order. On one rank that of
///         compute::cross_entropy_sum, bit for bit. With `blocks` of the columns, those that the head's
///         parameter has, the same bits on any number of ranks.
///         With blocks of rows it is [blocks of this rank]: the sum of each.
/// Cost    all_reduces of N and of 2N numbers, none in backward; the logits are overwritten by their
///         gradient when one is needed, so backward() runs at most once.
/// Errors  throws Error(kInvalidArgument) for a target outside [-1, V), naming it.
/// Source  Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3.
Typed<Replicated> cross_entropy_sum(const Typed<Features>& logits, const at::Tensor& targets,
                                    const Axis& axis, const Extents& columns,
                                    const ProductBlocks& blocks = {});

}  // namespace hanji::parallel::tensor
