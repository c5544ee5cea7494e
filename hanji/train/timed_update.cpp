#include "hanji/train/timed_update.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/train/optimizer.h"

namespace hanji::train {

TimedUpdate::TimedUpdate(const std::vector<int64_t>& sizes, const plan::Plan& plan,
                         c10::Device device)
    : layout_(plan::gradient_buckets(sizes, plan.config.comm.bucket_bytes).flat) {
  const auto type = plan.kernels.precision == plan::Precision::kFloat64 ? at::kDouble : at::kFloat;
  const auto on = at::TensorOptions(type).device(device);
  std::vector<parallel::NamedParameter> parameters;
  for (const int64_t size : sizes) {
    parameters.push_back({fmt::format("parameter {}", parameters.size()), at::zeros({size}, on)});
  }
  gradients_ = at::full({layout_.count}, 1e-3, on);
  optimizer_ = optimizer_of(plan)(
      parallel::whole_part(parameters, layout_, at::zeros({layout_.count}, on), gradients_,
                           parallel::decay_matrices(plan.config.train.weight_decay)),
      {});
}

void TimedUpdate::run() {
  const double norm = parallel::grad_norm(gradients_, layout_);
  optimizer_->step(1e-6, std::max(1.0, norm));
}

UpdatePart part_of_update(const plan::Plan& plan, int64_t max_elements) {
  UpdatePart part;
  int64_t elements = 0;
  const int64_t most = std::max<int64_t>(1, max_elements);
  for (const int64_t size : plan.model.parameter_sizes()) {
    if (elements >= most) break;
    part.sizes.push_back(std::min(size, most - elements));
    elements += part.sizes.back();
  }
  if (elements > 0) {
    part.scale = static_cast<double>(plan.model.num_parameters()) / static_cast<double>(elements);
  }
  return part;
}

}  // namespace hanji::train
