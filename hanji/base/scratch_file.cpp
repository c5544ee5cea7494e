#include "hanji/base/scratch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "hanji/base/advice.h"
#include "hanji/base/scratch_engine.h"
#include "hanji/base/units.h"

namespace hanji::base {
namespace {

namespace fs = std::filesystem;

int open_nameless(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string name = (folder / ".hanji_scratch_XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

/// Bytes that this user may still write on the disk of an open file; all there are if it does not
/// tell. By the file, for its folder may be gone.
int64_t free_on_disk_of(int fd) {
  struct statvfs info {};
  if (::fstatvfs(fd, &info) != 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(info.f_bavail * info.f_frsize);
}

Status disk_error(const std::string& what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  const char* way_out = full ? "make room there, or name a folder of another disk"
                             : "name a folder of a local disk that can be written";
  return {from_errno(what, error).code(),
          fmt::format("{}: {}; {}", what, std::strerror(error), way_out)};
}

/// The kernel would end the process by SIGXFSZ.
Status check_limit(const std::string& what, int64_t bytes) {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  if (limit.rlim_cur == RLIM_INFINITY || static_cast<uint64_t>(bytes) <= limit.rlim_cur) return {};
  return out_of_memory(
      fmt::format("{}: files of this process may have {} bytes; raise the limit "
                  "(ulimit -f)",
                  what, limit.rlim_cur));
}

/// Whether the file is now read and written past the page cache.
bool set_direct(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
}

}  // namespace

Result<Fd> open_past_cache(const fs::path& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (fd.valid()) return fd;
  if (errno != EINVAL) return from_errno(path.native(), errno);
  return unsupported(path.native() +
                     ": its file system has no reads past the kernel's cache (O_DIRECT); copy the "
                     "file to a local disk, or read it through that cache");
}

ScratchFile::ScratchFile(Fd fd, fs::path folder, const ScratchOptions& options)
    : fd_(std::move(fd)),
      folder_(std::move(folder)),
      wanted_(options.engine),
      timeout_(options.timeout) {}
ScratchFile::ScratchFile(ScratchFile&&) noexcept = default;
ScratchFile::~ScratchFile() = default;

Result<ScratchFile> ScratchFile::create(const fs::path& folder, int64_t bytes,
                                        const ScratchOptions& options) {
  Fd fd(open_nameless(folder));
  if (!fd.valid()) return disk_error("scratch file in " + folder.string(), errno);
  ScratchFile file(std::move(fd), folder, options);
  HANJI_RETURN_IF_ERROR(file.grow(bytes));
  HANJI_RETURN_IF_ERROR(file.choose_engine(options.log));
  return file;
}

Status ScratchFile::choose_engine(const Log* log) {
  const std::string cache =
      set_direct(fd_.get()) ? "past the page cache" : "through the page cache";
  Status refused;
  if (wanted_ != ScratchEngine::kThread) {
    auto ring = make_ring_engine(fd_.get());
    if (ring.ok()) {
      engine_ = *std::move(ring);
      description_ = "io_uring, " + cache;
      return {};
    }
    refused = ring.status();
    if (wanted_ == ScratchEngine::kRing) {
      return unsupported("scratch file in " + folder_.string() + ": " +
                         with_advice(refused.message(),
                                     "ask for ScratchEngine::kAuto, which "
                                     "takes a thread instead"));
    }
    if (log != nullptr) {
      log->warn("scratch file in " + folder_.string() + ": " + refused.message() +
                "; a thread reads and writes instead of io_uring");
    }
  }
  HANJI_ASSIGN_OR_RETURN(engine_, make_thread_engine(fd_.get()));
  description_ = "a thread, " + cache;
  return {};
}

Status ScratchFile::grow(int64_t bytes) {
  if (bytes <= num_bytes_) return {};
  const int64_t wanted = whole_blocks(bytes);
  const std::string what =
      fmt::format("scratch file of {} in {}", format_bytes(wanted), folder_.string());
  HANJI_RETURN_IF_ERROR(check_limit(what, wanted));
  // To try is to fill the disk for everybody until it fails.
  const int64_t free = free_on_disk_of(fd_.get());
  if (wanted - num_bytes_ > free) {
    return disk_error(what + ", where " + format_bytes(free) + " are free", ENOSPC);
  }
  int error = 0;
  do {
    error = ::fallocate(fd_.get(), 0, num_bytes_, wanted - num_bytes_) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EOPNOTSUPP || error == ENOSYS)
    error = ::ftruncate(fd_.get(), wanted) == 0 ? 0 : errno;
  if (error != 0) return disk_error(what, error);
  num_bytes_ = wanted;
  return {};
}

Status ScratchFile::check_range(int64_t at, int64_t bytes) const {
  if (at >= 0 && bytes >= 0 && at % kBlock == 0 && bytes % kBlock == 0 && at <= num_bytes_ &&
      bytes <= num_bytes_ - at) {
    return {};
  }
  return invalid_argument(fmt::format(
      "scratch file in {}: {} bytes at {}; both must be multiples of {} within its {} bytes",
      folder_.string(), bytes, at, kBlock, num_bytes_));
}

Result<ScratchFile::Ticket> ScratchFile::start(bool writes, int64_t at, Memory memory,
                                               int64_t bytes) {
  HANJI_RETURN_IF_ERROR(check_range(at, bytes));
  if (reinterpret_cast<uintptr_t>(memory.get()) % kBlock != 0) {
    return invalid_argument(
        "scratch file: memory must begin at a multiple of 4096; take it from "
        "scratch_memory()");
  }
  const Ticket ticket = next_++;
  const Open open{writes, at, bytes};
  const Status status = engine_->start(ticket, {writes, at, std::move(memory), bytes});
  if (!status.ok()) return status.at(words(open));
  open_.emplace(ticket, open);
  return ticket;
}

Result<ScratchFile::Ticket> ScratchFile::read(int64_t at, Memory memory, int64_t bytes) {
  return start(false, at, std::move(memory), bytes);
}

Result<ScratchFile::Ticket> ScratchFile::write(int64_t at, Memory memory, int64_t bytes) {
  return start(true, at, std::move(memory), bytes);
}

std::string ScratchFile::words(const Open& open) const {
  return fmt::format("scratch file in {}: {} of {} bytes at {}", folder_.string(),
                     open.writes ? "write" : "read", open.bytes, open.at);
}

Status ScratchFile::wait(Ticket ticket) {
  const Deadline deadline = Deadline::after(timeout_);
  while (true) {
    if (const auto found = ended_.find(ticket); found != ended_.end()) {
      const Status status = std::move(found->second);
      ended_.erase(found);
      return status;
    }
    const auto place = open_.find(ticket);
    if (place == open_.end()) {
      return invalid_argument(
          fmt::format("scratch file in {}: transfer {} was never started, or waited for before",
                      folder_.string(), ticket));
    }
    HANJI_ASSIGN_OR_RETURN(const auto ended, engine_->next(deadline));
    if (!ended) {
      return timeout(
          fmt::format("{}: not done within {:.1f} s; the disk is too slow or hangs: give "
                      "a longer timeout, or a folder of another disk",
                      words(place->second), std::chrono::duration<double>(timeout_).count()));
    }
    const auto done = open_.find(ended->ticket);
    Status& status = ended_[ended->ticket];
    if (ended->error != 0) {
      status = disk_error(words(done->second), ended->error);
    } else if (ended->moved < done->second.bytes) {
      status =
          corrupt(fmt::format("{}: only {} bytes are there; somebody has cut the file; resume "
                              "from a checkpoint",
                              words(done->second), ended->moved));
    }
    open_.erase(done);
  }
}

Result<ScratchFile::Memory> ScratchFile::map(int64_t at, int64_t bytes) const {
  HANJI_RETURN_IF_ERROR(check_range(at, whole_blocks(bytes)));
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return disk_error("stat of a scratch file", errno);
  if (info.st_size < at + bytes) {  // to touch what is not there would end the process
    return corrupt(
        fmt::format("scratch file in {}: {} of its {} bytes are there; somebody has cut the file; "
                    "resume from a "
                    "checkpoint",
                    folder_.string(), info.st_size, num_bytes_));
  }
  const auto length = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* data = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), at);
  if (data == MAP_FAILED) return disk_error("map a scratch file", errno);
  return Memory(static_cast<std::byte*>(data), [length](std::byte* p) { ::munmap(p, length); });
}

Result<ScratchFile::Memory> scratch_memory(int64_t bytes) {
  const auto length = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* data = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return out_of_memory("memory of " + format_bytes(bytes) +
                         " for transfers of a scratch file; take smaller or fewer pieces");
  }
  return ScratchFile::Memory(static_cast<std::byte*>(data),
                             [length](std::byte* p) { ::munmap(p, length); });
}

}  // namespace hanji::base
