#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>

namespace torch::optim {
class Optimizer;
class OptimizerParamState;
}  // namespace torch::optim

namespace hanji::parallel {

/// Of one parameter, at most.
constexpr size_t kMaxStateTensors = 3;

/// The state of one parameter in torch's optimizers, in one form.
struct ParameterState {
  int64_t step = 0;
  std::array<at::Tensor, kMaxStateTensors> tensors;  ///< Undefined: absent.
};

/// A class of torch's optimizers whose state hanji can read and make.
struct OptimizerKind {
  const char* name;
  ParameterState (*read)(const torch::optim::OptimizerParamState&);
  std::unique_ptr<torch::optim::OptimizerParamState> (*make)(const ParameterState&);
  /// The names of the tensors in a FlatOptimizer of that kind; null: absent.
  std::array<const char*, kMaxStateTensors> flat_names;
};

/// Errors  throws kUnsupported for classes other than AdamW, Adam and SGD.
OptimizerKind kind_of(const torch::optim::Optimizer& optimizer);

/// Returns null if the optimizer has no state for that parameter.
const torch::optim::OptimizerParamState* find_state(const torch::optim::Optimizer& optimizer,
                                                    const at::Tensor& parameter);

}  // namespace hanji::parallel
