#include "hanji/base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace hanji::base {
namespace {

constexpr std::chrono::milliseconds kPause{10};

}  // namespace

Result<FolderLock> FolderLock::take(const std::filesystem::path& folder, Deadline deadline) {
  Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return from_errno("open the folder " + folder.native(), errno);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return from_errno("lock the folder " + folder.native(), errno);
    if (deadline.passed()) return timeout(folder.native() + ": another process holds this folder");
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(kPause, deadline.remaining()));
  }
  return FolderLock(std::move(fd));
}

}  // namespace hanji::base
