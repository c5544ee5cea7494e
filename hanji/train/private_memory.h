#pragma once

#include <cstdint>
#include <memory>

namespace hanji::train {

/// Bytes of a forward and backward pass on one rank.
struct PassMemory {
  int64_t activations = 0;  ///< What the forward pass left for the backward pass.
  int64_t workspace = 0;    ///< What the backward pass held beside it at its highest point.
};

/// Counts the bytes that libtorch allocates on this thread while it lives (tensors outside the
/// heap), by libtorch's own memory report.
///
/// Thread  allocations and frees of the thread that made it, and of backward on it; a tensor freed
///         by another thread stays counted.
class PrivateMemory {
 public:
  PrivateMemory();
  ~PrivateMemory();
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;

  int64_t current_bytes() const;
  int64_t peak_bytes() const;
  /// The most since begin_peak(), or since the last mark below.
  int64_t recent_peak_bytes() const;
  void begin_peak();

  /// The three marks of a pass, in this order.
  void begin_forward();
  void begin_backward();
  void end_backward();
  /// The most of any pass so far; of later ones than the first, which also fills caches, if there
  /// were any.
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
