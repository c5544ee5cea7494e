#pragma once

#include <cstddef>

#include "hanji/base/status.h"

namespace hanji::base {

/// A part of a SharedMemory at other addresses, where writes are this process's own: they change
/// neither the shared bytes nor other mappings.
///
/// Bytes on pages that were not written here are the shared ones: they are defined only while nobody
/// writes to these.
/// Cost    addresses; a page of memory for each page that is written. Written pages count as private
///         memory of the process, which the kernel grants without a check.
class PrivateMapping {
 public:
  /// `fd`: of the SharedMemory, whose [offset, offset + bytes) is backed.
  static Result<PrivateMapping> map(int fd, size_t offset, size_t bytes);

  PrivateMapping(PrivateMapping&& other) noexcept;
  PrivateMapping& operator=(PrivateMapping&&) = delete;
  ~PrivateMapping();

  /// The byte at `offset`.
  std::byte* data() const { return pages_ + before_; }

 private:
  PrivateMapping(std::byte* pages, size_t before, size_t size)
      : pages_(pages), before_(before), size_(size) {}

  std::byte* pages_;
  size_t before_;  ///< Bytes of the first page in front of `offset`.
  size_t size_;
};

}  // namespace hanji::base
