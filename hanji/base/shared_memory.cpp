#include "hanji/base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "hanji/base/memory_headroom.h"
#include "hanji/base/units.h"

namespace hanji::base {
namespace {

constexpr size_t kMaxReservedBytes = size_t{1}
                                     << 46;  // half of what 47-bit addresses leave a process

size_t round_to_pages(size_t bytes) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

int fallocate_again(int fd, int mode, size_t offset, size_t bytes) {
  int result = 0;
  do {
    result = ::fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

Result<SharedMemory> SharedMemory::create(const std::string& name, size_t reserved_bytes) {
  if (reserved_bytes == 0 || reserved_bytes > kMaxReservedBytes) {
    return invalid_argument("shared memory '" + name + "': " + std::to_string(reserved_bytes) +
                            " bytes reserved; ask for 1 to " + std::to_string(kMaxReservedBytes));
  }
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return from_errno("create shared memory '" + name + "'", errno);
  const size_t bytes = round_to_pages(reserved_bytes);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return from_errno("reserve shared memory '" + name +
                          "' (a limit on the size of files, ulimit -f, holds for it too)",
                      errno);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return from_errno("seal shared memory '" + name + "'", errno);
  }
  return map(std::move(fd), bytes);
}

Result<SharedMemory> SharedMemory::attach(Fd fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return corrupt("shared memory: descriptor " + std::to_string(fd.get()) +
                   " is no memory sealed against shrinking; pass the one that create() made");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return from_errno("stat shared memory", errno);
  if (info.st_size <= 0 || static_cast<size_t>(info.st_size) > kMaxReservedBytes) {
    return corrupt("shared memory: " + std::to_string(info.st_size) + " bytes");
  }
  return map(std::move(fd), static_cast<size_t>(info.st_size));
}

Result<SharedMemory> SharedMemory::map(Fd fd, size_t bytes) {
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (data == MAP_FAILED) {
    return from_errno("map " + format_bytes(static_cast<int64_t>(bytes)) +
                          " of shared memory (an address limit, ulimit -v, must be above it)",
                      errno);
  }
  return SharedMemory(std::move(fd), static_cast<std::byte*>(data), bytes);
}

Result<ReadOnlyMapping> SharedMemory::map_read_only() const {
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd_.get(), 0);
  if (data == MAP_FAILED) {
    return from_errno("map " + format_bytes(static_cast<int64_t>(size_)) +
                          " of shared memory once more for reading (an address limit, ulimit -v, "
                          "must be above it)",
                      errno);
  }
  return ReadOnlyMapping(static_cast<const std::byte*>(data), size_);
}

ReadOnlyMapping::ReadOnlyMapping(ReadOnlyMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

ReadOnlyMapping::~ReadOnlyMapping() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  fd_ = std::move(other.fd_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

SharedMemory::~SharedMemory() { unmap(); }

void SharedMemory::unmap() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Status SharedMemory::check_range(size_t offset, size_t bytes) const {
  if (offset <= size_ && bytes <= size_ - offset) return {};
  return invalid_argument("shared memory: range " + std::to_string(offset) + " + " +
                          std::to_string(bytes) + " outside the " + std::to_string(size_) +
                          " reserved bytes; reserve more");
}

Status SharedMemory::grow(size_t offset, size_t bytes) const {
  HANJI_RETURN_IF_ERROR(check_range(offset, bytes));
  if (bytes == 0) return {};
  HANJI_ASSIGN_OR_RETURN(const MemoryHeadroom headroom, memory_headroom());
  if (headroom.bytes < 0 || bytes > static_cast<size_t>(headroom.bytes)) {
    return out_of_memory("shared memory: " + format_bytes(static_cast<int64_t>(bytes)) +
                         " asked, " + format_bytes(headroom.bytes) + " left by " +
                         headroom.limited_by + "; use a smaller model or micro-batch");
  }
  if (fallocate_again(fd(), 0, offset, bytes) == 0) return {};
  return from_errno("back " + format_bytes(static_cast<int64_t>(bytes)) + " of shared memory",
                    errno);
}

Status SharedMemory::release(size_t offset, size_t bytes) const {
  HANJI_RETURN_IF_ERROR(check_range(offset, bytes));
  if (bytes == 0) return {};
  if (fallocate_again(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) == 0)
    return {};
  return from_errno("release shared memory", errno);
}

size_t SharedMemory::backed_bytes() const {
  struct stat info {};
  return ::fstat(fd(), &info) == 0 ? static_cast<size_t>(info.st_blocks) * 512 : 0;
}

}  // namespace hanji::base
