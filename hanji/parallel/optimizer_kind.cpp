#include "hanji/parallel/optimizer_kind.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "hanji/base/status.h"

namespace hanji::parallel {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;

template <class State>
ParameterState read_adam(const OptimizerParamState& of) {
  const auto& state = static_cast<const State&>(of);
  return {state.step(), {state.exp_avg(), state.exp_avg_sq(), state.max_exp_avg_sq()}};
}

template <class State>
std::unique_ptr<OptimizerParamState> make_adam(const ParameterState& from) {
  auto state = std::make_unique<State>();
  state->step(from.step);
  state->exp_avg(from.tensors[0]);
  state->exp_avg_sq(from.tensors[1]);
  state->max_exp_avg_sq(from.tensors[2]);
  return state;
}

ParameterState read_sgd(const OptimizerParamState& of) {
  return {0, {static_cast<const torch::optim::SGDParamState&>(of).momentum_buffer()}};
}

std::unique_ptr<OptimizerParamState> make_sgd(const ParameterState& from) {
  auto state = std::make_unique<torch::optim::SGDParamState>();
  state->momentum_buffer(from.tensors[0]);
  return state;
}

constexpr std::array<const char*, kMaxStateTensors> kMoments = {"first_moment", "second_moment"};

}  // namespace

OptimizerKind kind_of(const Optimizer& optimizer) {
  using namespace torch::optim;
  if (dynamic_cast<const AdamW*>(&optimizer) != nullptr) {
    return {"AdamW", &read_adam<AdamWParamState>, &make_adam<AdamWParamState>, kMoments};
  }
  if (dynamic_cast<const Adam*>(&optimizer) != nullptr) {
    return {"Adam", &read_adam<AdamParamState>, &make_adam<AdamParamState>, kMoments};
  }
  if (dynamic_cast<const SGD*>(&optimizer) != nullptr) {
    return {"SGD", &read_sgd, &make_sgd, {"momentum"}};
  }
  throw Error(base::unsupported(
      "the state of an optimizer other than AdamW, Adam and SGD is not known here; move it by "
      "gather() and scatter()"));
}

const OptimizerParamState* find_state(const Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : found->second.get();
}

}  // namespace hanji::parallel
