#include "hanji/launch/internal/plan_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace hanji::launch {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
constexpr off_t kMaxBytes = 64 << 20;

}  // namespace

Result<base::Fd> write_plan(std::string_view plan_json) {
  base::Fd fd(::memfd_create("hanji_plan", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return base::from_errno("create a memfd for the plan", errno);
  for (size_t written = 0; written < plan_json.size();) {
    const ssize_t count = ::write(fd.get(), plan_json.data() + written, plan_json.size() - written);
    if (count < 0 && errno != EINTR) return base::from_errno("write the plan", errno);
    if (count > 0) written += count;
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return base::from_errno("seal the plan", errno);
  return fd;
}

Result<std::string> read_plan(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return base::from_errno("find the plan's size", errno);
  if (::fcntl(fd, F_GET_SEALS) != kSeals || status.st_size > kMaxBytes) {
    return base::corrupt("the plan's descriptor is not the sealed memory a launcher makes");
  }
  std::string text(status.st_size, '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::pread(fd, text.data() + done, text.size() - done, done);
    if (count == 0) return base::corrupt("the plan ends before its size");
    if (count < 0 && errno != EINTR) return base::from_errno("read the plan", errno);
    if (count > 0) done += count;
  }
  return text;
}

}  // namespace hanji::launch
