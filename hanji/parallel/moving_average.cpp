#include "hanji/parallel/moving_average.h"

#include <ATen/core/grad_mode.h>

#include <string>
#include <utility>

#include "hanji/base/status.h"

namespace hanji::parallel {

MovingAverage::MovingAverage(std::vector<NamedParameter> parameters, double decay)
    : parameters_(std::move(parameters)), decay_(decay) {
  if (!(decay >= 0 && decay < 1)) {
    throw Error(base::invalid_argument("moving average: decay " + std::to_string(decay) +
                                       " is not in [0, 1)"));
  }
  for (const NamedParameter& entry : parameters_) {
    const at::Tensor values = entry.tensor.detach();
    const auto dtype = values.element_size() < 4 ? at::kFloat : values.scalar_type();
    averages_.push_back({entry.name, values.to(dtype, /*non_blocking=*/false, /*copy=*/true)});
  }
}

void MovingAverage::update() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& average = averages_[i].tensor;
    average.lerp_(parameters_[i].tensor.to(average.scalar_type()), 1 - decay_);
  }
}

MovingAverage::Applied::Applied(const MovingAverage& average) : average_(average) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < average_.parameters_.size(); ++i) {
    const at::Tensor& parameter = average_.parameters_[i].tensor;
    kept_.push_back(parameter.detach().clone());
    parameter.detach().copy_(average_.averages_[i].tensor);
  }
}

MovingAverage::Applied::~Applied() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < kept_.size(); ++i) {
    average_.parameters_[i].tensor.detach().copy_(kept_[i]);
  }
}

}  // namespace hanji::parallel
