#pragma once

#include <cstdint>
#include <memory>

namespace hanji::comm {
class Heap;
}

namespace hanji::train {

/// Bytes of a forward and backward pass on one rank.
struct PassMemory {
  int64_t activations = 0;  ///< Kept by the forward pass for the backward pass.
  int64_t workspace = 0;    ///< The maximum of other bytes during the backward pass.
};

/// Bytes on a GPU, by the reports of libtorch's allocator there, which rounds each tensor up.
struct DeviceMemory {
  int64_t peak = 0;  ///< The maximum of the tensors'.
  int64_t reserved =
      0;  ///< The maximum that the allocator had taken from the GPU; it keeps what tensors free.
};

/// Counts the bytes that libtorch allocates on this thread during its lifetime (tensors outside the
/// heap), by libtorch's memory reports; and the maximum of these and the heap's together.
///
/// Thread  allocations and frees of the thread that made it, and of backward on it, which libtorch runs in threads of
///         its own for GPUs; a tensor freed by another thread remains counted.
class PrivateMemory {
 public:
  PrivateMemory();
  explicit PrivateMemory(const comm::Heap& heap);
  ~PrivateMemory();
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;

  int64_t current_bytes() const;
  /// Of the sum with the heap's, if there is one; taken whenever either grows.
  int64_t peak_bytes() const;
  /// Tensors on GPUs alone, which the other figures have too; nothing where there was none.
  DeviceMemory device() const;
  /// Of private ones, the maximum since begin_peak(), or since the last mark below.
  int64_t recent_peak_bytes() const;
  void begin_peak();

  /// The three marks of a pass, in this order. `of_pass`: what the forward would have allocated and finds there.
  void begin_forward(int64_t of_pass = 0);
  void begin_backward();
  void end_backward();
  /// The maximum over passes; without the first pass, which also fills caches, if there are others.
  const PassMemory& largest_pass() const { return largest_pass_; }

 private:
  class Counter;
  class Guard;
  std::shared_ptr<Counter> counter_;
  std::unique_ptr<Guard> guard_;
  PassMemory largest_pass_;
  int64_t num_passes_ = 0;
  int64_t before_forward_ = 0;
  int64_t before_backward_ = 0;
};

}  // namespace hanji::train
