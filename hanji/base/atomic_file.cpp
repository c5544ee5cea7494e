#include "hanji/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"

namespace hanji::base {

namespace fs = std::filesystem;

Result<AtomicFile> AtomicFile::create(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  // A name that no other process or thread takes: an existing file is an error.
  fs::path temporary =
      folder / fmt::format(".{}.{}.{}.tmp", path.filename().string(), ::getpid(), now_ns());
  Fd fd;
  do {
    fd = Fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  } while (!fd.valid() && errno == EINTR);
  if (!fd.valid()) return from_errno("open " + temporary.string(), errno);
  return AtomicFile(std::move(fd), path, std::move(temporary));
}

AtomicFile::~AtomicFile() {
  if (fd_.valid()) ::unlink(temporary_.c_str());
}

Status AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno != EINTR) return from_errno("write " + temporary_.string(), errno);
    if (written <= 0) continue;
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) return from_errno("fsync " + temporary_.string(), errno);
  HANJI_RETURN_IF_ERROR(rename_and_sync(temporary_, path_));
  fd_.reset();
  return {};
}

}  // namespace hanji::base
