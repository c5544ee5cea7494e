#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace hanji::shm {
class Heap;
class Segment;
}  // namespace hanji::shm

namespace hanji::comm {

/// This rank's arena of the host's shared memory, as torch tensors. A cheap handle.
///
/// A tensor made here is read and written by peers in place: collectives move it without a copy.
/// Thread  safe.
class Heap {
 public:
  /// The arena of `rank` in `segment`. One per rank and segment: two would hand out the same bytes.
  Heap(std::shared_ptr<shm::Segment> segment, int rank);

  /// An arena nobody else maps, for a process that runs alone or over a network engine.
  /// Errors  throws Error(kOutOfMemory) where the system grants no shared memory.
  static Heap private_arena();

  /// A contiguous CPU tensor whose storage lies in the arena, 64-byte aligned, not resizable.
  ///
  /// `category` is the line of the memory report it is counted under, e.g. "gradients".
  /// Result  the last reference frees the block; the storage holds the mapping alive.
  /// Errors  throws Error(kOutOfMemory) where the host has no headroom, Error(kInvalidArgument)
  ///         for a negative size.
  at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype, std::string_view category);

  /// As empty(), every byte zero.
  at::Tensor zeros(at::IntArrayRef sizes, c10::ScalarType dtype, std::string_view category);

  /// True if peers of the segment can reach the tensor's first element, whichever rank owns it.
  bool contains(const at::Tensor& tensor) const;

  /// This rank's bytes in use, the most there ever were, and what is in use by category.
  size_t used_bytes() const;
  size_t peak_bytes() const;
  std::map<std::string, size_t> usage() const;

  /// The allocator below.
  shm::Heap& raw() const { return *raw_; }
  const std::shared_ptr<shm::Segment>& segment() const { return segment_; }
  int rank() const { return rank_; }

 private:
  std::shared_ptr<shm::Segment> segment_;
  std::shared_ptr<shm::Heap> raw_;
  int rank_;
};

}  // namespace hanji::comm
