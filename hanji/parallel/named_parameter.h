#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

/// A tensor of a module and its name in the module.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

/// Returns the distinct parameters, frozen ones too, in order of registration.
std::vector<NamedParameter> distinct_parameters(const torch::nn::Module& module);

/// Returns the distinct trainable parameters, in order of registration; a tied tensor has its first
/// name.
std::vector<NamedParameter> learning_parameters(const torch::nn::Module& module);

}  // namespace hanji::parallel
