#include "hanji/base/cold_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/base/fd.h"
#include "hanji/base/scratch_engine.h"

namespace hanji::base {
namespace {

constexpr size_t kColdReadBytes = size_t{8} << 20;
constexpr size_t kColdAlignment = 4096;

/// Of the pages of a mapping, those in memory.
Result<double> resident_share(int fd, size_t bytes, const std::string& name) {
  if (bytes == 0) return 0.0;
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return from_errno(name, errno);
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  const int result = ::mincore(address, bytes, pages.data());
  const int error = errno;
  ::munmap(address, bytes);
  if (result != 0) return from_errno(name, error);
  const auto there = std::ranges::count_if(pages, [](unsigned char one) { return one & 1; });
  return static_cast<double>(there) / static_cast<double>(pages.size());
}

}  // namespace

Result<double> drop_cached_pages(const std::filesystem::path& path) {
  const std::string& name = path.native();
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about = {};
  if (!fd.valid() || ::fstat(fd.get(), &about) != 0) return from_errno(name, errno);
  if (::fdatasync(fd.get()) != 0) return from_errno(name, errno);
  if (const int error = ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED); error != 0) {
    return from_errno(name, error);
  }
  return resident_share(fd.get(), static_cast<size_t>(about.st_size), name);
}

Result<double> read_past_cache(const std::filesystem::path& path, double most_seconds) {
  HANJI_ASSIGN_OR_RETURN(const Fd fd, open_past_cache(path));
  const std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(std::aligned_alloc(kColdAlignment, kColdReadBytes)),
      [](std::byte* one) { std::free(one); });
  if (!memory) return out_of_memory("a buffer of 8 MiB to read a file into");
  const int64_t begin = now_ns();
  const auto seconds = [begin] { return static_cast<double>(now_ns() - begin) * 1e-9; };
  int64_t at = 0;
  while (true) {
    const int64_t moved =
        move_bytes(fd.get(), {.at = at, .memory = memory, .bytes = int64_t{kColdReadBytes}});
    if (moved < 0) return from_errno(path.native(), errno);
    at += moved;
    if (moved < int64_t{kColdReadBytes} || seconds() > most_seconds) break;
  }
  if (at == 0) return invalid_argument(fmt::format("{} is empty", path.native()));
  return static_cast<double>(at) / std::max(seconds(), 1e-9);
}

}  // namespace hanji::base
