#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include "hanji/models/internal/numbers.h"

namespace hanji::models::internal {

std::vector<double> numbers_of(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return {};
  std::vector<at::Tensor> flat;
  for (const at::Tensor& one : tensors) flat.push_back(one.detach().to(at::kDouble).flatten());
  const at::Tensor all = at::cat(flat).to(at::kCPU);
  const auto* values = all.const_data_ptr<double>();
  return {values, values + all.numel()};
}

at::Tensor numbers_on(c10::Device device, std::span<const double> values) {
  return at::tensor(at::ArrayRef<double>(values.data(), values.size()), at::kDouble)
      .to(device, /*non_blocking=*/true);
}

}  // namespace hanji::models::internal
