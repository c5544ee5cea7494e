#include "hanji/launch/internal/rank_process.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <utility>

#include "hanji/launch/internal/control.h"

namespace hanji::launch {

RankProcess::RankProcess(int rank, pid_t pid, base::Fd pidfd, base::Fd control)
    : rank_(rank), pid_(pid), pidfd_(std::move(pidfd)), control_(std::move(control)) {}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : rank_(other.rank_),
      pid_(other.pid_),
      pidfd_(std::move(other.pidfd_)),
      control_(std::move(other.control_)),
      running_(std::exchange(other.running_, false)),
      report_(std::move(other.report_)),
      stack_(std::move(other.stack_)) {}

RankProcess::~RankProcess() {
  if (!running_) return;
  signal(SIGKILL);
  reap();
}

void RankProcess::signal(int signal) const {
  // Unreaped, our child keeps its number, so this can hit nobody else.
  if (running_) ::kill(-pid_, signal);
}

void RankProcess::forget() {
  running_ = false;
  pidfd_.reset();
  control_.reset();
}

void RankProcess::take_reports() {
  bool closed = false;
  while (control_.valid() && !closed) {
    auto told = take_words(control_.get(), closed);
    if (!told) break;
    if (told->report && report_.ok()) report_ = *std::move(told->report);
    stack_ += told->stack;
  }
  if (closed) control_.reset();
}

RankExit RankProcess::reap() {
  RankExit exit;
  exit.rank = rank_;
  exit.pid = pid_;
  siginfo_t info{};
  while (::waitid(P_PID, pid_, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  take_reports();
  signal(SIGKILL);
  running_ = false;
  rusage usage{};
  while (::wait4(pid_, nullptr, 0, &usage) < 0 && errno == EINTR) {
  }
  exit.peak_bytes = usage.ru_maxrss * int64_t{1024};
  if (info.si_code == CLD_EXITED) {
    exit.exit_code = info.si_status;
  } else {
    exit.signal = info.si_status;
  }
  exit.report = report_;
  control_.reset();
  return exit;
}

}  // namespace hanji::launch
