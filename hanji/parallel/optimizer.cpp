#include "hanji/parallel/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <optional>

namespace hanji::parallel {

FlatAdamW::FlatAdamW(const std::vector<at::Tensor>& parameters, const layout::FlatLayout& layout,
                     const at::Tensor& flat_gradients, const AdamWOptions& options)
    : options_(options),
      first_moment_(at::zeros_like(flat_gradients)),
      second_moment_(at::zeros_like(flat_gradients)),
      step_(at::zeros({}, flat_gradients.options().dtype(at::kFloat))) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto piece = [&](const at::Tensor& flat) {
      return flat.slice(0, layout.offsets[i], layout.offsets[i] + layout.sizes[i]);
    };
    add(parameters[i], piece(flat_gradients), piece(first_moment_), piece(second_moment_));
  }
}

FlatAdamW::FlatAdamW(const std::vector<at::Tensor>& parameters, const AdamWTensors& tensors,
                     const AdamWOptions& options)
    : options_(options) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i == 0) step_ = at::zeros({}, parameters[i].options().dtype(at::kFloat));
    add(parameters[i], tensors.gradients[i].view({-1}), tensors.first_moments[i].view({-1}),
        tensors.second_moments[i].view({-1}));
  }
}

void FlatAdamW::add(const at::Tensor& parameter, at::Tensor gradient, at::Tensor first_moment,
                    at::Tensor second_moment) {
  decayed_.weight_decay = options_.weight_decay;
  Pieces& pieces = parameter.dim() >= 2 ? decayed_ : plain_;
  pieces.parameters.push_back(parameter.detach().view({-1}));
  pieces.gradients.push_back(std::move(gradient));
  pieces.first_moments.push_back(std::move(first_moment));
  pieces.second_moments.push_back(std::move(second_moment));
  pieces.steps.push_back(step_);
}

void FlatAdamW::step(double learning_rate, double gradient_divisor) {
  const at::NoGradGuard no_grad;
  ++num_updates_;
  if (!step_.defined()) return;  // a shard of nothing
  step_.fill_(num_updates_);     // the kernel expects the number of this update, not of the last
  for (Pieces* pieces : {&decayed_, &plain_}) {
    if (!pieces->parameters.empty()) update(*pieces, learning_rate, gradient_divisor);
  }
}

void FlatAdamW::update(Pieces& pieces, double learning_rate, double gradient_divisor) {
  // The kernel divides by a float32; gradients of float64 are divided here, in their own type.
  std::optional<at::Tensor> divisor;
  if (pieces.gradients[0].scalar_type() == at::kDouble) {
    for (at::Tensor& gradient : pieces.gradients) gradient.div_(gradient_divisor);
  } else {
    divisor = at::full({}, gradient_divisor, step_.options());
  }
  at::_fused_adamw_(pieces.parameters, pieces.gradients, pieces.first_moments,
                    pieces.second_moments, /*max_exp_avg_sqs=*/{}, pieces.steps, learning_rate,
                    options_.beta1, options_.beta2, pieces.weight_decay, options_.epsilon,
                    /*amsgrad=*/false, /*maximize=*/false, divisor, /*found_inf=*/std::nullopt);
}

}  // namespace hanji::parallel
