#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "hanji/layout/placement.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/parallel/tensor/blocks.h"

namespace hanji::parallel::tensor {

/// Ranks that have the parameters of one model among them, as stages of a pipeline have.
struct NormSharers {
  std::function<void(at::Tensor& sums)>
      add_up;                 ///< Over these ranks, in place; empty: one has all.
  std::vector<bool> counted;  ///< By parameter: this rank adds it, and no other one does.
};

/// The Euclidean norm of the gradients of a model that is computed in blocks of features, or whose
/// layers lie on several ranks, with the bits of one process.
class BlockNorm {
 public:
  /// `parameters`: what learns of the whole model, in order of registration, each this rank's part on
  /// `axis`. Those that `sharers` have elsewhere may be without memory.
  BlockNorm(std::vector<NamedParameter> parameters, const layout::Cut& cut, const Axis& axis,
            NormSharers sharers = {});

  /// Shape   one gradient per parameter, shaped like it, on the CPU; `parameters` has at least those
  ///         that this rank counts.
  /// Result  without blocks that of grad_norm(). In blocks, squares are summed as by norm_blocks(),
  ///         counted from the start of each block of each parameter, row by row; the sums of a block over
  ///         its parameters, then of all blocks by the tree of the axis, then what no rank cuts.
  /// Cost    one pass over the gradients, and a copy of one block at a time; one sum of a number over
  ///         the axis; one sum of a double for each 1024 elements over the sharers. Collective.
  double of(const std::vector<NamedParameter>& parameters,
            const std::vector<at::Tensor>& gradients) const;

 private:
  struct Part {
    at::Tensor parameter;
    int64_t dim = 0;
    FeatureBlocksPtr blocks = {};  ///< Null: all ranks of the axis have it.
    bool is_counted = true;
  };
  /// Partial sums of each own block, then of what no rank cuts.
  using Sums = std::vector<std::vector<double>>;
  static void add(const Part& part, const at::Tensor& gradient, Sums& sums);
  void add_of_sharers(Sums& sums) const;

  Axis axis_;
  std::vector<Part> parts_;
  FeatureBlocksPtr order_;  ///< Of the numbers of this rank's blocks; null: there are none.
  std::function<void(at::Tensor&)> add_up_;
};

}  // namespace hanji::parallel::tensor
