#pragma once

#include <signal.h>

namespace hanji::base {

/// While it lives, a write of this thread to a closed pipe or connection is EPIPE and no SIGPIPE,
/// whatever the program has decided about that signal; threads started meanwhile never get one. Its
/// end leaves the thread's mask as it was. Three system calls.
/// Threads  it ends on the thread that made it.
class SigpipeGuard {
 public:
  SigpipeGuard();
  ~SigpipeGuard();
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t before_;
  bool was_pending_;
};

}  // namespace hanji::base
