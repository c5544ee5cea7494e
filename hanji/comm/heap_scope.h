#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "hanji/comm/heap.h"

namespace hanji::comm {

/// While it lives, new CPU tensors of this thread are allocated in a heap, also those made by an operation,
/// a module, autograd. Collectives and peers then reach them as any tensor of the heap, without a
/// copy.
///
/// Result  a tensor without room in the heap lies where it would have lain without the scope. Bytes
///         in the heap are counted under `category`, and by libtorch's memory hooks as those of any
///         CPU tensor; so the activations of a plan stay its activations. Tensors outlive the scope,
///         and the heap's mapping lives as long as they do; they may be resized at any time, outside
///         the scope into private memory.
/// Order   scopes nest: the innermost one of the thread serves. Another thread is not concerned, nor
///         are the threads of an operation that runs in parallel.
/// Cost    of each tensor a look into the heap's map instead of malloc. A thread without a scope
///         pays one branch per tensor while any thread has one.
/// Errors  throws Error(kUnsupported) where libtorch's allocator cannot be set.
/// Thread  made and destroyed by one thread, last made first. libtorch's CPU allocator belongs to
///         the process and is set without a lock: hanji sets one that looks at a variable of the
///         thread when the first scope opens, and puts back the one of before when the last ends.
///         An allocator that is set meanwhile by others is left in its place.
class HeapScope {
 public:
  explicit HeapScope(Heap heap, std::string_view category = "activations");
  ~HeapScope();
  HeapScope(const HeapScope&) = delete;
  HeapScope& operator=(const HeapScope&) = delete;

  /// What this scope has served so far, by what lies in the heap and what found no room there.
  struct Counts {
    int64_t heap_tensors = 0;
    int64_t heap_bytes = 0;
    int64_t private_tensors = 0;
    int64_t private_bytes = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  friend class HeapAllocator;

  Heap heap_;
  const std::string category_;
  HeapScope* const outer_;  ///< The thread's scope before this one.
  Counts counts_;
};

}  // namespace hanji::comm
