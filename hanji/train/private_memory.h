#pragma once

#include <cstdint>
#include <memory>

namespace hanji::train {

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

 private:
  class Counter;
  class Guard;
  std::shared_ptr<Counter> counter_;
  std::unique_ptr<Guard> guard_;
};

}  // namespace hanji::train
