#include "hanji/parallel/fsdp/internal/buffer_pool.h"

#include <ATen/ops/empty.h>

#include "hanji/comm/host_values.h"
#include "hanji/parallel/fsdp/internal/flat_unit.h"

namespace hanji::parallel {

BufferPool::BufferPool(int64_t bytes, int limit, c10::Device device, const comm::Group& group)
    : bytes_(bytes), limit_(limit), device_(device), group_(group) {}

at::Tensor BufferPool::take(int64_t count, c10::ScalarType dtype) {
  if (free_.empty()) {
    free_.push_back(comm::zeros_on(device_, {bytes_}, at::kByte, *group_, "gradients"));
    ++num_made_;
  }
  const at::Tensor bytes = free_.back();
  free_.pop_back();
  return at::empty({0}, bytes.options().dtype(dtype)).set_(bytes.storage(), 0, {count}, {});
}

void BufferPool::give(const at::Tensor& taken) {
  free_.push_back(
      at::empty({0}, taken.options().dtype(at::kByte)).set_(taken.storage(), 0, {bytes_}, {}));
}

}  // namespace hanji::parallel
