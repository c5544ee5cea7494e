#include "hanji/launch/control_plane/wake.h"

#include <sys/eventfd.h>

#include <cerrno>

namespace hanji::launch {

Result<Wake> Wake::create() {
  base::Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return base::from_errno("eventfd", errno);
  return Wake(std::move(fd));
}

// A full counter has woken the thread already, and an empty one has nothing to clear.
void Wake::notify() const { static_cast<void>(::eventfd_write(fd_.get(), 1)); }

void Wake::clear() const {
  eventfd_t count = 0;
  static_cast<void>(::eventfd_read(fd_.get(), &count));
}

}  // namespace hanji::launch
