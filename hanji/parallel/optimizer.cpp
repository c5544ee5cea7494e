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
      gradients_(flat_gradients),
      first_moment_(at::zeros_like(flat_gradients)),
      second_moment_(at::zeros_like(flat_gradients)),
      step_(at::zeros({}, flat_gradients.options().dtype(at::kFloat))) {
  decayed_.weight_decay = options.weight_decay;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto piece = [&](const at::Tensor& flat) {
      return flat.slice(0, layout.offsets[i], layout.offsets[i] + layout.sizes[i]);
    };
    Pieces& pieces = parameters[i].dim() >= 2 ? decayed_ : plain_;
    pieces.parameters.push_back(parameters[i].detach().view({-1}));
    pieces.gradients.push_back(piece(flat_gradients));
    pieces.first_moments.push_back(piece(first_moment_));
    pieces.second_moments.push_back(piece(second_moment_));
    pieces.steps.push_back(step_);
  }
}

void FlatAdamW::step(double learning_rate, double gradient_divisor) {
  const at::NoGradGuard no_grad;
  ++num_updates_;
  step_.fill_(num_updates_);  // the kernel expects the number of this update, not of the last
  // The kernel divides by a float32; gradients of float64 are divided here, in their own type.
  at::Tensor divisor;
  if (gradients_.scalar_type() == at::kDouble) {
    gradients_.div_(gradient_divisor);
  } else {
    divisor = at::full({}, gradient_divisor, step_.options());
  }
  update(decayed_, learning_rate, divisor);
  update(plain_, learning_rate, divisor);
}

void FlatAdamW::update(Pieces& pieces, double learning_rate, const at::Tensor& divisor) {
  if (pieces.parameters.empty()) return;
  at::_fused_adamw_(pieces.parameters, pieces.gradients, pieces.first_moments,
                    pieces.second_moments, /*max_exp_avg_sqs=*/{}, pieces.steps, learning_rate,
                    options_.beta1, options_.beta2, pieces.weight_decay, options_.epsilon,
                    /*amsgrad=*/false, /*maximize=*/false,
                    divisor.defined() ? std::optional(divisor) : std::nullopt,
                    /*found_inf=*/std::nullopt);
}

}  // namespace hanji::parallel
