#include "hanji/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/text.h"

namespace hanji::base {

namespace fs = std::filesystem;

namespace {

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// Whether `path` still names the open file.
bool is_still(const Fd& fd, const fs::path& path) {
  struct stat open = {}, named = {};
  return ::fstat(fd.get(), &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

/// Names the file that the caller asked for: the one beside it is no concern of theirs.
Status write_error(const fs::path& path, int error) {
  const fs::path folder = parent_of(path);
  std::error_code unknown;
  if (error == ENOENT && !fs::exists(folder, unknown)) {
    return not_found(fmt::format("write {}: there is no folder {}; make it, or name another path",
                                 path.native(), folder.native()));
  }
  return from_errno("write " + path.native(), error);
}

/// A device is not to be replaced by a file.
Status check_name(const fs::path& path) {
  if (!path.has_filename()) {
    return invalid_argument(
        fmt::format("write '{}': this names no file; add a name", path.native()));
  }
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode)) return {};
  if (S_ISDIR(there.st_mode)) return write_error(path, EISDIR);
  return invalid_argument(fmt::format("write {}: no regular file; name a file", path.native()));
}

}  // namespace

Result<AtomicFile> AtomicFile::resume(const fs::path& path) {
  HANJI_RETURN_IF_ERROR(check_name(path));
  fs::path temporary = parent_of(path) / fmt::format(".{}.part", path.filename().string());
  while (true) {
    Fd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!fd.valid() && errno == EINTR) continue;
    if (!fd.valid() && (errno == EISDIR || errno == ELOOP)) {
      return invalid_argument(
          fmt::format("write {}: {}, where an unfinished one is kept, is no "
                      "file; remove it, or name another path",
                      path.native(), temporary.native()));
    }
    if (!fd.valid()) return write_error(path, errno);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) return write_error(path, errno);
      return invalid_argument(path.native() +
                              ": another process writes this file; wait for it, or stop it");
    }
    // Its last writer may have committed it between the two calls.
    if (!is_still(fd, temporary)) continue;
    AtomicFile file(std::move(fd), path, std::move(temporary));
    file.stays_ = true;
    return file;
  }
}

Result<AtomicFile> AtomicFile::create(const fs::path& path) {
  HANJI_RETURN_IF_ERROR(check_name(path));
  // A name that no other process or thread takes: an existing file is an error. Begins as that of
  // `path` does, which may be as long as a name can be.
  constexpr size_t kMaxOfName = 180;
  fs::path temporary =
      parent_of(path) / fmt::format(".{}.{}.{}.tmp", path.filename().string().substr(0, kMaxOfName),
                                    ::getpid(), now_ns());
  Fd fd;
  do {
    fd = Fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  } while (!fd.valid() && errno == EINTR);
  if (!fd.valid()) return write_error(path, errno);
  return AtomicFile(std::move(fd), path, std::move(temporary));
}

bool AtomicFile::is_unfinished(const fs::path& path) {
  const std::string name = path.filename().string();
  const auto parts = split(name, '.');  // "", those of the name, a process, a time, "tmp"
  const auto is_number = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
  };
  return parts.size() >= 5 && parts.front().empty() && parts.back() == "tmp" &&
         is_number(parts[parts.size() - 2]) && is_number(parts[parts.size() - 3]);
}

AtomicFile::~AtomicFile() {
  if (!stays_) discard();
}

void AtomicFile::discard() {
  if (fd_.valid()) ::unlink(temporary_.c_str());
  fd_.reset();
}

Status AtomicFile::truncate(uint64_t bytes) {
  while (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return write_error(path_, errno);
  }
  return {};
}

Status AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno != EINTR) return write_error(path_, errno);
    if (written <= 0) continue;
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) return write_error(path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return write_error(path_, errno);
  fd_.reset();
  return fsync_directory(parent_of(path_));
}

Status as_error_of(const fs::path& path, const fs::path& beside, const Status& status) {
  if (status.ok()) return status;
  std::string message = status.message();
  const auto replace = [&message](const std::string& old, const std::string& by) {
    for (size_t at = message.find(old); at != std::string::npos; at = message.find(old, at)) {
      message.replace(at, old.size(), by);
      at += by.size();
    }
  };
  const std::string &name = path.native(), &other = beside.native();
  replace(fmt::format("rename {} to {}", other, name), "write " + name);
  replace(other, name);
  return {status.code(), message};
}

}  // namespace hanji::base
