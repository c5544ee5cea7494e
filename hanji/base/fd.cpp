#include "hanji/base/fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hanji::base {

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Fd::release() { return std::exchange(fd_, -1); }

void Fd::reset() {
  if (valid()) ::close(release());
}

Result<Fd> Fd::duplicate() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return from_errno("duplicate descriptor " + std::to_string(fd_), errno);
  return Fd(copy);
}

Status Fd::set_inherit(Inherit inherit) const {
  if (::fcntl(fd_, F_SETFD, inherit == Inherit::kYes ? 0 : FD_CLOEXEC) == 0) return {};
  return from_errno("change inheritance of descriptor " + std::to_string(fd_), errno);
}

}  // namespace hanji::base
