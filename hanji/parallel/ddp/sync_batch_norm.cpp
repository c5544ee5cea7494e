#include "hanji/parallel/ddp/sync_batch_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <torch/nn/modules/batchnorm.h>

#include <numeric>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/comm/differentiable.h"
#include "hanji/parallel/gradients/gradient_hook.h"

namespace hanji::parallel {
namespace {

/// All dimensions but that of the channels.
std::vector<int64_t> other_dimensions(const at::Tensor& input) {
  std::vector<int64_t> dimensions{0};
  for (int64_t d = 2; d < input.dim(); ++d) dimensions.push_back(d);
  return dimensions;
}

at::Tensor beside_channels(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = input.size(1);
  return values.view(shape);
}

std::vector<int> all_ranks_of(const comm::Group& group) {
  std::vector<int> ranks(group.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

SyncBatchNorm::SyncBatchNorm(torch::nn::Module& norm, const comm::Group& group)
    : norm_(&norm), group_(group.subgroup(all_ranks_of(group), "batch norm")) {
  const auto adopt = [&](const auto* found) {
    if (!found) return false;
    weight_ = found->weight;
    bias_ = found->bias;
    running_mean_ = found->running_mean;
    running_variance_ = found->running_var;
    num_batches_ = found->num_batches_tracked;
    num_features_ = found->options.num_features();
    epsilon_ = found->options.eps();
    momentum_ = found->options.momentum();
    return true;
  };
  if (adopt(norm.as<torch::nn::BatchNorm1d>()) || adopt(norm.as<torch::nn::BatchNorm2d>()) ||
      adopt(norm.as<torch::nn::BatchNorm3d>())) {
    return;
  }
  throw Error(base::invalid_argument("SyncBatchNorm of a " + norm.name() +
                                     "; it takes a BatchNorm1d, BatchNorm2d or BatchNorm3d"));
}

void SyncBatchNorm::check_input(const at::Tensor& input) const {
  if (input.dim() >= 2 && input.size(1) == num_features_) return;
  throw Error(base::invalid_argument(
      "SyncBatchNorm: an input of " + std::to_string(input.dim()) + " dimensions with " +
      (input.dim() >= 2 ? std::to_string(input.size(1)) : "no") + " channels; it takes [N, " +
      std::to_string(num_features_) + ", ...]"));
}

void SyncBatchNorm::check_bits() const {
  const std::string strategy = weight_.defined() ? stable_strategy_of(weight_) : "";
  if (strategy.empty()) return;
  throw Error(base::unsupported(
      "SyncBatchNorm: " + strategy +
      " trains its weight with stable bits, but statistics of all ranks' batches differ with the "
      "number of ranks; call the batch norm itself, whose statistics are those of a grain"));
}

SyncBatchNorm::Moments SyncBatchNorm::moments_of(const at::Tensor& input) const {
  namespace differentiable = comm::differentiable;
  const auto dimensions = other_dimensions(input);
  const auto count = static_cast<double>(input.numel() / num_features_);
  const at::Tensor local = at::cat({input.sum(dimensions, false, at::kDouble),
                                    at::full({1}, count, input.options().dtype(at::kDouble))});
  const at::Tensor sums = differentiable::all_reduce(local, group_);
  Moments moments;
  moments.count = sums[num_features_].item<double>();
  if (moments.count < 2) {
    throw Error(base::invalid_argument(
        "SyncBatchNorm: " + std::to_string(static_cast<int64_t>(moments.count)) +
        " values per channel on all ranks together; a variance takes 2"));
  }
  moments.mean = sums.slice(0, 0, num_features_) / moments.count;
  moments.centered = input - beside_channels(moments.mean.to(input.scalar_type()), input);
  moments.variance = differentiable::all_reduce(
                         moments.centered.square().sum(dimensions, false, at::kDouble), group_) /
                     moments.count;
  return moments;
}

void SyncBatchNorm::track(const Moments& moments) const {
  if (!running_mean_.defined()) return;
  const at::NoGradGuard no_grad;
  at::Tensor(num_batches_).add_(1);
  const double share = momentum_ ? *momentum_ : 1.0 / num_batches_.item<double>();
  const at::Tensor variance = moments.variance * (moments.count / (moments.count - 1));
  at::Tensor(running_mean_).lerp_(moments.mean.to(running_mean_.scalar_type()), share);
  at::Tensor(running_variance_).lerp_(variance.to(running_variance_.scalar_type()), share);
}

at::Tensor SyncBatchNorm::operator()(const at::Tensor& input) const {
  check_input(input);
  if (!norm_->is_training() && running_mean_.defined()) {
    return at::batch_norm(input, weight_, bias_, running_mean_, running_variance_, false, 0.0,
                          epsilon_, false);
  }
  check_bits();
  const at::Tensor wide = input.element_size() < 4 ? input.to(at::kFloat) : input;
  const Moments moments = moments_of(wide);
  if (norm_->is_training()) track(moments);
  const at::Tensor scale = (moments.variance + epsilon_).rsqrt().to(wide.scalar_type());
  at::Tensor result = moments.centered * beside_channels(scale, wide);
  if (weight_.defined()) {
    result = result * beside_channels(weight_, wide) + beside_channels(bias_, wide);
  }
  return result.to(input.scalar_type());
}

}  // namespace hanji::parallel
