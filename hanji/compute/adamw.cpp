#include "hanji/compute/adamw.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "hanji/base/status.h"
#include "hanji/compute/internal/adamw_kernel.h"
#include "hanji/trace/own_kernel.h"

namespace hanji::compute {
namespace {

constexpr int64_t kVector = 16;
constexpr int64_t kVectorsOfThread = 2048;

void check(const at::Tensor& tensor, at::ScalarType type, int64_t count) {
  if (tensor.is_cpu() && tensor.scalar_type() == type && tensor.is_contiguous() &&
      tensor.numel() == count) {
    return;
  }
  throw Error(base::invalid_argument(
      "adamw_update of " + tensor.toString() + " with " + std::to_string(tensor.numel()) +
      " elements beside " + std::to_string(count) +
      " of the parameter; give contiguous float32 tensors of one size on the CPU, and "
      "bfloat16 for what is rounded"));
}

internal::AdamWNumbers numbers_of(const AdamWStep& step) {
  const auto updates = static_cast<double>(step.update);
  const double correction1 = 1 - std::pow(step.beta1, updates);
  const double correction2 = 1 - std::pow(step.beta2, updates);
  return {static_cast<float>(step.gradient_divisor),
          static_cast<float>(1 - step.learning_rate * step.weight_decay),
          static_cast<float>(1 - step.beta1),
          static_cast<float>(step.beta2),
          static_cast<float>(1 - step.beta2),
          static_cast<float>(std::sqrt(correction2)),
          static_cast<float>(step.epsilon),
          static_cast<float>(-(step.learning_rate / correction1))};
}

}  // namespace

void adamw_update(const AdamWTensors& tensors, const AdamWStep& step) {
  const int64_t count = tensors.parameter.numel();
  for (const at::Tensor& one :
       {tensors.parameter, tensors.gradient, tensors.first_moment, tensors.second_moment}) {
    check(one, at::kFloat, count);
  }
  if (tensors.rounded.defined()) check(tensors.rounded, at::kBFloat16, count);
  const internal::AdamWElements elements{
      tensors.parameter.mutable_data_ptr<float>(), tensors.gradient.const_data_ptr<float>(),
      tensors.first_moment.mutable_data_ptr<float>(),
      tensors.second_moment.mutable_data_ptr<float>(),
      tensors.rounded.defined()
          ? static_cast<internal::BFloat16*>(tensors.rounded.mutable_data_ptr())
          : nullptr};
  const internal::AdamWNumbers numbers = numbers_of(step);
  // Reads parameter, gradient and two moments, and writes all but the gradient.
  const trace::OwnKernel kernel(
      {.name = "hanji::adamw",
       .flops = 12.0 * static_cast<double>(count),
       .bytes =
           count * static_cast<int64_t>(7 * sizeof(float) + (tensors.rounded.defined() ? 2 : 0))});
  const int64_t vectors = (count + kVector - 1) / kVector;
  at::parallel_for(0, vectors, kVectorsOfThread, [&](int64_t begin, int64_t end) {
    internal::adamw(begin * kVector, std::min(count, end * kVector), elements, numbers);
  });
}

}  // namespace hanji::compute
