#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "hanji/comm/group.h"

namespace hanji::parallel {

/// Buffers of one size that units take by turns for their gradients.
class BufferPool {
 public:
  BufferPool() = default;
  BufferPool(int64_t bytes, int limit, c10::Device device, const comm::Group& group);

  /// False: take() would make one more buffer than the limit.
  bool has_room() const { return !free_.empty() || num_made_ < limit_; }
  /// `count` elements; their values are what the last user left.
  at::Tensor take(int64_t count, c10::ScalarType dtype);
  void give(const at::Tensor& taken);

 private:
  int64_t bytes_ = 0;
  int limit_ = 0;
  c10::Device device_ = at::kCPU;
  std::optional<comm::Group> group_;
  std::vector<at::Tensor> free_;
  int num_made_ = 0;
};

}  // namespace hanji::parallel
