#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "hanji/base/kernel_choice.h"
#include "hanji/layers/model.h"
#include "hanji/layout/range.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/plan/config.h"

namespace hanji::models {

/// The inputs of a model besides its configuration.
struct MakeOptions {
  base::KernelChoice kernels;
  int64_t classes = 0;  ///< Token ids or classes of the data.
  c10::Device device = c10::kCPU;
  parallel::tensor::Axis axis =
      {};  ///< That cuts the model, by "tp" or "axial" as its family can be.
  parallel::tensor::Axis context = {};  ///< "cp", whose ranks have parts of each sample's tokens.
  /// The layers that will run here; what only other layers read has its sizes, and no memory. Empty: all.
  std::vector<layout::Range> layers = {};
};

/// Makes the model of a resolved configuration, by the maker of its family.
///
/// Result  initial values depend only on train.seed and the model's sizes.
/// Errors  throws kInvalidArgument for contradictory sizes, kUnsupported for a family of programs' own
///         models.
std::shared_ptr<layers::Model> make(const plan::Config& config, const MakeOptions& options);

}  // namespace hanji::models
