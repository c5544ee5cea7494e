#include "hanji/launch/internal/sealed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace hanji::launch {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
constexpr off_t kMaxFileBytes = 64 << 20;

}  // namespace

Result<base::Fd> write_sealed(std::string_view text, const std::string& what) {
  base::Fd fd(::memfd_create(("hanji_" + what).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return base::from_errno("create a memfd for the " + what, errno);
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(fd.get(), text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) return base::from_errno("write the " + what, errno);
    if (count > 0) written += count;
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return base::from_errno("seal the " + what, errno);
  return fd;
}

Result<std::string> read_sealed(int fd, const std::string& what) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return base::from_errno("find the size of the " + what, errno);
  if (::fcntl(fd, F_GET_SEALS) != kSeals || status.st_size > kMaxFileBytes) {
    return base::corrupt("the descriptor of the " + what +
                         " is not the sealed memory a launcher makes");
  }
  std::string text(status.st_size, '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::pread(fd, text.data() + done, text.size() - done, done);
    if (count == 0) return base::corrupt("the " + what + " ends before its size");
    if (count < 0 && errno != EINTR) return base::from_errno("read the " + what, errno);
    if (count > 0) done += count;
  }
  return text;
}

}  // namespace hanji::launch
