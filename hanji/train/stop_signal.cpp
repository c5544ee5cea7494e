#include "hanji/train/stop_signal.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "hanji/base/stop_signals.h"

namespace hanji::train {

Result<StopSignal> StopSignal::create() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : base::obeyed_stop_signals()) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  base::Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return base::from_errno("signalfd", errno);
  return StopSignal(std::move(fd));
}

std::optional<int> StopSignal::poll() {
  std::optional<int> last;
  signalfd_siginfo info;
  while (read(fd_.get(), &info, sizeof(info)) == sizeof(info)) {
    last = static_cast<int>(info.ssi_signo);
  }
  return last;
}

}  // namespace hanji::train
