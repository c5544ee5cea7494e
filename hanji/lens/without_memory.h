#pragma once

#include <memory>

namespace hanji::lens {

/// While it lives, this thread's operations on tensors of the meta device work where libtorch has no
/// kernel for them too, and are reported to libtorch's memory report as if they had memory: who
/// counts bytes counts those of a model that was built without.
///
/// Cost    some microseconds per operation; one that libtorch cannot make there is made in memory,
///         whose results are forgotten at once.
/// Errors  kUnsupported, naming it, for an operation that needs elements (item()) of such a tensor.
/// Thread  ends on the thread that made it, where its backward passes run too.
class WithoutMemory {
 public:
  WithoutMemory();
  ~WithoutMemory();
  WithoutMemory(const WithoutMemory&) = delete;
  WithoutMemory& operator=(const WithoutMemory&) = delete;

 private:
  class Calls;
  class Open;
  std::unique_ptr<Open> open_;
};

}  // namespace hanji::lens
