#include "hanji/checkpoint/named_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace hanji::checkpoint {

std::optional<int64_t> dense_bytes(DType dtype, std::span<const int64_t> shape) {
  bool empty = false;
  int64_t bytes = static_cast<int64_t>(base::size_of(dtype));
  for (const int64_t length : shape) {
    if (length < 0) return std::nullopt;
    if (length == 0) empty = true;
  }
  if (empty) return 0;
  for (const int64_t length : shape) {
    if (__builtin_mul_overflow(bytes, length, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string describe(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} [{}]", base::name_of(dtype), fmt::join(shape, ", "));
}

int64_t SavedTensor::num_bytes() const {
  int64_t bytes = 0;
  for (const auto& run : runs) bytes += static_cast<int64_t>(run.size());
  return bytes;
}

std::vector<SavedTensor> in_one_run(std::span<const NamedTensor> tensors) {
  std::vector<SavedTensor> saved;
  for (const NamedTensor& tensor : tensors) {
    saved.push_back({tensor.name, tensor.dtype, tensor.shape, {tensor.bytes}});
  }
  return saved;
}

}  // namespace hanji::checkpoint
