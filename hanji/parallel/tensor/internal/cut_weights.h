#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "hanji/layout/placement.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/parallel/tensor/cut_module.h"

namespace hanji::parallel::tensor {

/// A Linear or Embedding that is cut.
struct CutWeight {
  std::string module;
  ModuleCut cut = ModuleCut::kColumn;
  bool is_table = false;  ///< Of an Embedding.
  at::Tensor weight = {};
  at::Tensor bias = {};  ///< Undefined: there is none.
  Extents extents = {};  ///< Of all ranks, along the cut dimension.

  int64_t dim() const { return cut == ModuleCut::kRow && !is_table ? 1 : 0; }
  bool cuts_bias() const { return cut == ModuleCut::kColumn && bias.defined(); }
};

/// Finds the modules of `cuts` and replaces their parameters by this rank's parts.
///
/// Errors  as CutModule; then nothing has been replaced.
std::vector<CutWeight> cut_weights(torch::nn::Module& module, const Axis& axis,
                                   const ModuleCuts& cuts);

/// Of the parameters of these and of those that are whole.
layout::PlacementTable placements_of(const std::vector<CutWeight>& weights);

}  // namespace hanji::parallel::tensor
