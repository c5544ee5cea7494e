#pragma once

#include <c10/core/Allocator.h>

#include <memory>

namespace torch {
class Library;
}

namespace hanji::train {

/// While it lives, the bytes that libtorch's tensors on the device "meta" would have are reported as those of tensors
/// that have them, so PrivateMemory counts them: of a forward and backward of any size, without memory or arithmetic.
///
/// Result  libtorch has no layer_norm and relu of such tensors in C++; some are registered meanwhile, whose results have
///         the sizes of the CPU's.
/// Thread  the allocator and kernels of "meta" are the process's, so one of these lives at a time; tensors of other
///         threads are reported to their own counters.
class MetaMemory {
 public:
  MetaMemory();
  ~MetaMemory();
  MetaMemory(const MetaMemory&) = delete;
  MetaMemory& operator=(const MetaMemory&) = delete;

 private:
  c10::Allocator* before_;
  std::unique_ptr<torch::Library> kernels_;
};

}  // namespace hanji::train
