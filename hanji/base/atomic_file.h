#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "hanji/base/fd.h"

namespace hanji::base {

/// A file that appears under its name whole or not at all, so that a reader, or the disk after a
/// power cut, has the old content or the new one. It is written beside its name.
/// Errors  name the path that was asked for; kInvalidArgument for what the user can mend, kNotFound for a
///         folder that does not exist, kOutOfMemory on a full disk.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& path);
  /// As create(), but what was written stays beside `path` until commit() or discard(), and a later
  /// call finds it there.
  /// Errors  kInvalidArgument while another process has it.
  static Result<AtomicFile> resume(const std::filesystem::path& path);
  /// Whether create() writes under a name like this: in a folder where nobody writes, what a process
  /// that was killed has left.
  static bool is_unfinished(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  /// Of create(): removes what was written unless it was committed.
  ~AtomicFile();

  /// Writes at any place; bytes between two places are zeros. Errors: kOutOfMemory on a full disk.
  Status write_at(uint64_t offset, std::span<const std::byte> bytes);
  /// Waits until the disk has the bytes, then the name. Order: once, at the end.
  Status commit();
  /// Cuts off what lies behind `bytes`.
  Status truncate(uint64_t bytes);
  /// Removes what was written. Order: instead of commit().
  void discard();
  /// Its name.
  const std::filesystem::path& path() const { return path_; }
  /// Where it is written.
  const std::filesystem::path& temporary() const { return temporary_; }

 private:
  AtomicFile(Fd fd, std::filesystem::path path, std::filesystem::path temporary)
      : fd_(std::move(fd)), path_(std::move(path)), temporary_(std::move(temporary)) {}

  Fd fd_;  // closed: committed, discarded or moved from
  bool stays_ = false;
  std::filesystem::path path_;
  std::filesystem::path temporary_;
};

/// An error of `beside`, where `path` is written first, as one of `path`: callers know no other name.
Status as_error_of(const std::filesystem::path& path, const std::filesystem::path& beside,
                   const Status& status);

}  // namespace hanji::base
