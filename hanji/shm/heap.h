#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/shm/segment.h"

namespace hanji::shm {

enum class Zero : bool { kNo, kYes };

/// Memory that every rank of the host maps: what lies here is communicated without a copy.
struct HeapBlock {
  int64_t offset = 0;  ///< From the start of the segment: the same number on every rank.
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// One rank's arena in the segment. Allocation is local: peers learn offsets from the calls.
///
/// Shape   blocks are 64-byte aligned; those of 2 MiB and more lie in huge pages where the kernel
///         grants them. Arenas are skewed, so that the same block of two ranks does not meet in
///         one place of a cache.
/// Order   blocks may outlive this object, not the segment; what free() gets may still be read by
///         peers that have not finished their calls, so free only what no open call uses.
/// Thread  any.
class Heap {
 public:
  Heap(std::shared_ptr<Segment> segment, int rank);

  /// `bytes` of memory, counted under `category`. 0 bytes give a block of one line.
  /// Errors  kOutOfMemory with what is left; never a signal later.
  Result<HeapBlock> allocate(size_t bytes, std::string_view category, Zero zero = Zero::kNo);
  /// Gives a block back. Its memory stays with the arena for the next one.
  /// Errors  kInvalidArgument if no block starts there.
  Status free(int64_t offset);

  /// Whether the address lies in the arena of any rank.
  bool contains(const void* address) const;
  /// Of an address that contains() knows.
  int64_t offset_of(const void* address) const;
  std::byte* at(int64_t offset) const { return segment_->data() + offset; }

  /// Bytes in use by category: this rank's blocks; and of each category the most there ever were.
  std::map<std::string, size_t> usage() const;
  std::map<std::string, size_t> peak_usage() const;
  /// Bytes in use and the most there ever were, of any rank.
  size_t used_bytes(int rank) const;
  size_t peak_bytes(int rank) const;
  int rank() const { return rank_; }
  const std::shared_ptr<Segment>& segment() const { return segment_; }

 private:
  struct Used {
    size_t bytes;
    std::string category;
  };
  Result<size_t> take(size_t bytes);
  size_t take_free(size_t bytes);
  Status extend(size_t end);
  void count(int64_t bytes);
  /// Bytes that one category has, and the most that it had.
  struct Counted {
    size_t now = 0, peak = 0;
  };

  std::shared_ptr<Segment> segment_;
  int rank_;
  mutable std::mutex mutex_;
  std::map<size_t, Used> used_;  ///< By offset in the arena.
  std::map<std::string, Counted, std::less<>> categories_;
  std::map<size_t, size_t> free_;  ///< Offset to bytes; neighbours are always merged.
  size_t end_ = 0;                 ///< Blocks and free ranges lie below.
  size_t backed_ = 0;              ///< Memory is there below.
};

}  // namespace hanji::shm
