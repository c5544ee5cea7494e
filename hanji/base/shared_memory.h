#pragma once

#include <cstddef>
#include <string>

#include "hanji/base/fd.h"

namespace hanji::base {

/// Memory that this process can only read, mapped once more. A write there ends the process.
class ReadOnlyMapping {
 public:
  ReadOnlyMapping(ReadOnlyMapping&& other) noexcept;
  ReadOnlyMapping& operator=(ReadOnlyMapping&&) = delete;
  ~ReadOnlyMapping();

  const std::byte* data() const { return data_; }

 private:
  friend class SharedMemory;
  ReadOnlyMapping(const std::byte* data, size_t size) : data_(data), size_(size) {}

  const std::byte* data_;
  size_t size_;
};

/// One memfd mapped whole: sparse until grown, nameless, sealed against shrinking.
///
/// The size is a reservation of addresses. Touching bytes that nobody grew may end in SIGBUS when
/// memory is short, so a writer calls grow() first. Other processes attach to a copy of fd().
/// Thread  grow() may be called from several threads and processes at once.
class SharedMemory {
 public:
  /// A new, zeroed reservation; `name` shows in /proc/PID/maps. Rounded up to whole pages.
  static Result<SharedMemory> create(const std::string& name, size_t reserved_bytes);
  /// Maps what another process created.
  /// Errors  kCorrupt if the descriptor is no memfd sealed against shrinking: its owner could cut
  ///         it under our feet.
  static Result<SharedMemory> attach(Fd fd);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

  /// Backs [offset, offset + bytes) with memory, now. Backed pages keep their contents.
  /// Errors  kOutOfMemory with what is left and who limits it, before the kernel would kill;
  ///         kInvalidArgument outside the reservation.
  Status grow(size_t offset, size_t bytes) const;
  /// Gives the memory of whole pages in [offset, offset + bytes) back; they read as zero again.
  Status release(size_t offset, size_t bytes) const;
  /// The same bytes at other addresses, for reading only.
  Result<ReadOnlyMapping> map_read_only() const;
  /// Bytes that are backed now.
  size_t backed_bytes() const;

 private:
  SharedMemory(Fd fd, std::byte* data, size_t size)
      : fd_(std::move(fd)), data_(data), size_(size) {}
  static Result<SharedMemory> map(Fd fd, size_t bytes);
  Status check_range(size_t offset, size_t bytes) const;
  void unmap();

  Fd fd_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hanji::base
