#include "hanji/parallel/flat_parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include "hanji/base/status.h"

namespace hanji::parallel {

layout::FlatLayout flat_layout_of(const std::vector<NamedParameter>& parameters) {
  std::vector<int64_t> sizes;
  for (const auto& entry : parameters) sizes.push_back(entry.tensor.numel());
  return layout::flat_layout(sizes);
}

void move_into_flat(const std::vector<at::Tensor>& parameters, const layout::FlatLayout& layout,
                    const at::Tensor& flat) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    if (parameter.numel() != layout.sizes[i] || parameter.scalar_type() != flat.scalar_type()) {
      throw Error(base::invalid_argument(
          "move_into_flat: parameter " + std::to_string(i) + " has " +
          std::to_string(parameter.numel()) + " elements of " +
          c10::toString(parameter.scalar_type()) + ", the flat tensor expects " +
          std::to_string(layout.sizes[i]) + " of " + c10::toString(flat.scalar_type())));
    }
    at::Tensor piece = flat.slice(0, layout.offsets[i], layout.offsets[i] + layout.sizes[i])
                           .view(parameter.sizes());
    piece.copy_(parameter);
    parameter.unsafeGetTensorImpl()->set_storage_and_dtype(piece.storage(), piece.dtype());
    parameter.unsafeGetTensorImpl()->set_sizes_and_strides(piece.sizes(), piece.strides(),
                                                           piece.storage_offset());
  }
}

at::Tensor alias(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes) {
  return at::empty({0}, flat.options())
      .set_(flat.storage(), flat.storage_offset() + offset, sizes, {});
}

}  // namespace hanji::parallel
