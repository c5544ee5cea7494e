#pragma once

#include <filesystem>

#include "hanji/base/clock.h"
#include "hanji/base/fd.h"

namespace hanji::base {

/// Keeps a folder for one owner among all processes of the host. The kernel gives it back when the
/// owner dies, however it dies; nothing is written, so nothing stale can stay.
class FolderLock {
 public:
  /// Takes the lock, trying until `deadline` while another holds it; tries at least once.
  /// Errors  kTimeout when it is held all the time; kNotFound when there is no such folder.
  static Result<FolderLock> take(const std::filesystem::path& folder, Deadline deadline);

 private:
  explicit FolderLock(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace hanji::base
