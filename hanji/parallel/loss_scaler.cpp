#include "hanji/parallel/loss_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>

#include <cmath>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/comm/host_values.h"
#include "hanji/comm/new_tags.h"
#include "hanji/parallel/grad_norm.h"

namespace hanji::parallel {

LossScaler::LossScaler(const comm::Group& group, const LossScalerOptions& options)
    : group_(group), tag_(comm::new_tags(group)), options_(options), factor_(options.initial) {
  if (!(options.initial > 0) || !std::isfinite(options.initial) || !(options.growth >= 1) ||
      !(options.backoff > 0 && options.backoff < 1) || options.interval < 1) {
    throw Error(base::invalid_argument(
        "loss scaler: initial " + std::to_string(options.initial) + ", growth " +
        std::to_string(options.growth) + ", backoff " + std::to_string(options.backoff) +
        " and interval " + std::to_string(options.interval) +
        " must be above 0, at least 1, between 0 and 1, and at least 1"));
  }
}

at::Tensor LossScaler::scale(const at::Tensor& loss) const { return loss.mul(factor_); }

bool LossScaler::unscale(std::span<const at::Tensor> gradients) {
  return unscale_each([&](const Visit& visit) {
    for (const at::Tensor& gradient : gradients) visit(gradient);
  });
}

bool LossScaler::unscale_each(const std::function<void(const Visit&)>& each) {
  const at::NoGradGuard no_grad;
  uint8_t overflow = 0;
  each([&](const at::Tensor& gradient) {
    gradient.div_(factor_);
    if (!at::isfinite(gradient).all().item<bool>()) overflow = 1;
  });
  at::Tensor anywhere = at::full({1}, overflow, at::kByte);
  comm::all_reduce_on_host(
      anywhere, group_,
      {.op = schedule::ReduceOp::kMax, .tag = tag_, .label = "gradient overflow"});
  const bool finite = anywhere.item<uint8_t>() == 0;
  if (!finite) {
    factor_ *= options_.backoff;
    steps_ = 0;
  } else if (++steps_ == options_.interval) {
    if (std::isfinite(factor_ * options_.growth)) factor_ *= options_.growth;
    steps_ = 0;
  }
  return finite;
}

bool LossScaler::unscale_of(std::span<const at::Tensor> parameters) {
  return unscale(distinct_gradients(parameters));
}

void LossScaler::set(double factor, int64_t steps_since_change) {
  if (!(factor > 0) || steps_since_change < 0 || steps_since_change >= options_.interval) {
    throw Error(base::invalid_argument(
        "loss scaler: factor " + std::to_string(factor) + " must be > 0 and steps_since_change " +
        std::to_string(steps_since_change) + " in [0, " + std::to_string(options_.interval) +
        "); set what factor() and steps_since_change() returned"));
  }
  factor_ = factor;
  steps_ = steps_since_change;
}

}  // namespace hanji::parallel
