#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

/// A tensor of a module under the name the module gives it.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

/// The distinct parameters that learn, in order of registration: a tied tensor is listed under its
/// first name only.
std::vector<NamedParameter> learning_parameters(const torch::nn::Module& module);

}  // namespace hanji::parallel
