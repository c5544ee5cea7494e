#include "hanji/comm/heap.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/comm/heap_peaks.h"
#include "hanji/shm/heap.h"
#include "hanji/shm/segment.h"

namespace hanji::comm {
namespace {

size_t bytes_of(at::IntArrayRef sizes, c10::ScalarType dtype) {
  uint64_t bytes = c10::elementSize(dtype);
  for (const int64_t size : sizes) {
    if (size < 0) {
      throw Error(base::invalid_argument(
          fmt::format("heap tensor: size {} is negative; every size must be at least 0", size)));
    }
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      throw Error(
          base::invalid_argument("heap tensor: its bytes do not fit 64 bits; make it smaller"));
    }
  }
  return bytes;
}

at::Tensor make_tensor(const std::shared_ptr<shm::Heap>& heap, at::IntArrayRef sizes,
                       c10::ScalarType dtype, std::string_view category, shm::Zero zero) {
  const shm::HeapBlock block = heap->allocate(bytes_of(sizes, dtype), category, zero).or_throw();
  // Who counts memory counts this beside it now.
  c10::reportMemoryUsageToProfiler(block.data, 0, 0, 0, c10::Device(c10::kCPU));
  // The heap holds its segment, so the mapping outlives the last tensor.
  const auto free = [heap, offset = block.offset](void*) {
    [[maybe_unused]] const Status freed = heap->free(offset);  // fails only for a foreign block
  };
  return at::from_blob(block.data, sizes, free, at::TensorOptions(dtype));
}

}  // namespace

Heap::Heap(std::shared_ptr<shm::Segment> segment, int rank)
    : segment_(std::move(segment)), rank_(rank) {
  raw_ = std::make_shared<shm::Heap>(segment_, rank);
}

Heap Heap::private_arena() {
  shm::SegmentOptions options;
  options.trace_events = 1;
  return Heap(shm::Segment::create(options).or_throw(), 0);
}

at::Tensor Heap::empty(at::IntArrayRef sizes, c10::ScalarType dtype, std::string_view category) {
  return make_tensor(raw_, sizes, dtype, category, shm::Zero::kNo);
}

at::Tensor Heap::zeros(at::IntArrayRef sizes, c10::ScalarType dtype, std::string_view category) {
  return make_tensor(raw_, sizes, dtype, category, shm::Zero::kYes);
}

bool Heap::contains(const at::Tensor& tensor) const {
  return tensor.defined() && tensor.device().is_cpu() && tensor.has_storage() &&
         raw_->contains(tensor.const_data_ptr());
}

size_t Heap::used_bytes() const { return raw_->used_bytes(rank_); }
size_t Heap::peak_bytes() const { return raw_->peak_bytes(rank_); }
std::map<std::string, size_t> Heap::usage() const { return raw_->usage(); }
std::map<std::string, size_t> peak_usage(const Heap& heap) { return heap.raw().peak_usage(); }

}  // namespace hanji::comm
