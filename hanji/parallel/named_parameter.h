#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace hanji::parallel {

/// A tensor of a module under the name the module gives it.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

}  // namespace hanji::parallel
