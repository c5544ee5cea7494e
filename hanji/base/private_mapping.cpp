#include "hanji/base/private_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "hanji/base/units.h"

namespace hanji::base {

Result<PrivateMapping> PrivateMapping::map(int fd, size_t offset, size_t bytes) {
  const size_t before = offset % static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t size = before + (bytes > 0 ? bytes : 1);
  void* pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd,
                       static_cast<off_t>(offset - before));
  if (pages == MAP_FAILED) {
    return from_errno("map " + format_bytes(static_cast<int64_t>(bytes)) +
                          " of shared memory once more, for private writes (an address limit, "
                          "ulimit -v, must be above it)",
                      errno);
  }
  return PrivateMapping(static_cast<std::byte*>(pages), before, size);
}

PrivateMapping::PrivateMapping(PrivateMapping&& other) noexcept
    : pages_(std::exchange(other.pages_, nullptr)), before_(other.before_), size_(other.size_) {}

PrivateMapping::~PrivateMapping() {
  if (pages_ != nullptr) ::munmap(pages_, size_);
}

}  // namespace hanji::base
