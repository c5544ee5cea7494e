#include "hanji/launch/internal/orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>

namespace hanji::launch {

Orphans::Orphans(bool adopts) : adopts_(adopts) {
  if (!adopts_) return;
  ::prctl(PR_GET_CHILD_SUBREAPER, &before_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // process 1 adopts anyway
}

Orphans::~Orphans() {
  if (adopts_) ::prctl(PR_SET_CHILD_SUBREAPER, before_);
}

void Orphans::reap(const std::function<bool(pid_t)>& is_rank) const {
  if (!adopts_) return;
  while (true) {
    siginfo_t dead{};
    const int looked = ::waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT);
    // A rank is reaped with what it reported; those behind it at the next look.
    if (looked != 0 || dead.si_pid == 0 || is_rank(dead.si_pid)) return;
    ::waitpid(dead.si_pid, nullptr, WNOHANG);
  }
}

}  // namespace hanji::launch
