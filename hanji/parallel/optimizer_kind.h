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

/// What torch's optimizers keep of one parameter, in one form.
struct ParameterState {
  int64_t step = 0;
  std::array<at::Tensor, kMaxStateTensors> tensors;  ///< Undefined: not kept.
};

/// A class of torch's optimizers whose state can be read and made.
struct OptimizerKind {
  const char* name;
  ParameterState (*read)(const torch::optim::OptimizerParamState&);
  std::unique_ptr<torch::optim::OptimizerParamState> (*make)(const ParameterState&);
  /// What a FlatOptimizer of that kind calls the tensors; null: it keeps none of them.
  std::array<const char*, kMaxStateTensors> flat_names;
};

/// Errors  throws kUnsupported for classes other than AdamW, Adam and SGD.
OptimizerKind kind_of(const torch::optim::Optimizer& optimizer);

/// Null: it keeps nothing of that parameter.
const torch::optim::OptimizerParamState* find_state(const torch::optim::Optimizer& optimizer,
                                                    const at::Tensor& parameter);

}  // namespace hanji::parallel
