#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hanji/layout/placement.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/parallel/tensor/blocks.h"

namespace hanji::parallel::tensor {

/// The Euclidean norm of the gradients of a model that is computed in blocks of features.
class BlockNorm {
 public:
  /// `parameters` are this rank's parts of a model that is cut so on `axis`.
  BlockNorm(const std::vector<NamedParameter>& parameters, const layout::Cut& cut,
            const Axis& axis);

  /// Shape   one gradient per parameter, shaped like it, on the CPU.
  /// Result  the bits of one process. Squares are summed as by norm_blocks(), counted from the start of
  ///         each block of each parameter, row by row; the sums of a block over its parameters, then of
  ///         all blocks by the tree of the axis, then what no rank cuts.
  /// Cost    one pass over the gradients, and a copy of one block at a time; one sum of a number over
  ///         the axis. Collective.
  double of(const std::vector<at::Tensor>& gradients) const;

 private:
  struct Part {
    int64_t dim;
    FeatureBlocksPtr blocks;  ///< Null: all ranks have it.
  };
  double sum_of_block(const std::vector<at::Tensor>& gradients, size_t block) const;

  Axis axis_;
  std::vector<Part> parts_;  ///< By parameter.
  FeatureBlocksPtr order_;   ///< Of the numbers of this rank's blocks.
};

}  // namespace hanji::parallel::tensor
