#include "hanji/train/meta_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

namespace hanji::train {
namespace {

constexpr c10::DeviceType kMeta = c10::DeviceType::Meta;

void report(int64_t bytes) { c10::reportMemoryUsageToProfiler(nullptr, bytes, 0, 0, kMeta); }

/// The context of a pointer to nothing is the number of its bytes.
void release(void* context) {
  auto* bytes = static_cast<int64_t*>(context);
  report(-*bytes);
  delete bytes;
}

class ReportingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* context = new int64_t(static_cast<int64_t>(bytes));
    report(*context);
    return {nullptr, context, &release, kMeta};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, std::size_t) const override {}
};

/// Outlives the tensors that it has allocated.
ReportingAllocator& reporting_allocator() {
  static ReportingAllocator allocator;
  return allocator;
}

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// The result, and mean and scale of each row in the weight's dtype.
Three layer_norm(const at::Tensor& x, at::IntArrayRef normalized,
                 const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>&,
                 double) {
  std::vector<int64_t> rows = x.sizes().vec();
  for (size_t i = rows.size() - normalized.size(); i < rows.size(); ++i) rows[i] = 1;
  const at::TensorOptions options =
      x.options().dtype(weight ? weight->scalar_type() : x.scalar_type());
  return {at::empty_like(x, at::MemoryFormat::Contiguous), at::empty(rows, options),
          at::empty(rows, options)};
}

Three layer_norm_backward(const at::Tensor&, const at::Tensor& x, at::IntArrayRef,
                          const at::Tensor&, const at::Tensor&,
                          const std::optional<at::Tensor>& weight,
                          const std::optional<at::Tensor>& bias, std::array<bool, 3> mask) {
  const auto like = [](const std::optional<at::Tensor>& one, bool is_needed) {
    return is_needed && one ? at::empty_like(*one) : at::Tensor();
  };
  return {mask[0] ? at::empty_like(x, at::MemoryFormat::Contiguous) : at::Tensor(),
          like(weight, mask[1]), like(bias, mask[2])};
}

at::Tensor relu(const at::Tensor& x) { return at::empty_like(x); }

}  // namespace

MetaMemory::MetaMemory() : before_(c10::GetAllocator(kMeta)) {
  c10::SetAllocator(kMeta, &reporting_allocator());
  kernels_ = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::Meta,
                                              __FILE__, __LINE__);
  kernels_->impl("relu", &relu);
  kernels_->impl("native_layer_norm", &layer_norm);
  kernels_->impl("native_layer_norm_backward", &layer_norm_backward);
}

MetaMemory::~MetaMemory() { c10::SetAllocator(kMeta, before_); }

}  // namespace hanji::train
