#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/parallel/pipeline/stages.h"

namespace hanji::parallel {

/// The norm of all gradients of a model whose stages lie on several ranks, with the bits of grad_norm().
class StagedNorm {
 public:
  /// Made before keep_stages_of() frees parameters.
  StagedNorm(const layers::Model& model, const Stages& stages, const comm::Group& group);

  /// `gradients`: of `parameters`, those of this rank; tied ones have their sum.
  /// Order   collective. Cost: an all_gather of a double for each 1024 elements.
  double of(const std::vector<NamedParameter>& parameters,
            const std::vector<at::Tensor>& gradients) const;

 private:
  struct Counted {
    at::Tensor parameter;
    int rank = 0;  ///< Of its first stage.
    int64_t num_blocks = 0;
  };
  std::vector<Counted> counted_;  ///< In order of registration.
  comm::Group group_;
};

}  // namespace hanji::parallel
