#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "hanji/base/kernel_choice.h"
#include "hanji/layers/model.h"
#include "hanji/plan/config.h"

namespace hanji::models {

/// What a model is made from beside its configuration.
struct MakeOptions {
  base::KernelChoice kernels;
  int64_t classes = 0;  ///< Token ids or classes of the data.
  c10::Device device = c10::kCPU;
};

/// Makes the model that a resolved configuration names, by the maker of its family.
///
/// Result  initial values depend on train.seed and the model's sizes alone.
/// Errors  throws kInvalidArgument for sizes that exclude each other, kUnsupported for a family whose
///         models are a program's own.
std::shared_ptr<layers::Model> make(const plan::Config& config, const MakeOptions& options);

}  // namespace hanji::models
