#include "hanji/base/stop_signals.h"

#include <utility>

namespace hanji::base {
namespace {

bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
         now.sa_handler == SIG_IGN;
}

}  // namespace

std::vector<int> obeyed_stop_signals() {
  std::vector<int> obeyed;
  for (const int signal : kStopSignals) {
    if (signal == SIGINT || !is_ignored(signal)) obeyed.push_back(signal);
  }
  return obeyed;
}

sigset_t stop_signal_set() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : kStopSignals) ::sigaddset(&set, signal);
  return set;
}

HeldStopSignals::HeldStopSignals() {
  const sigset_t set = stop_signal_set();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

HeldStopSignals::~HeldStopSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::thread start_without_stop_signals(std::function<void()> body) {
  const HeldStopSignals held;  // which the thread inherits
  return std::thread(std::move(body));
}

void reset_stop_signals(bool held) {
  for (const int signal : kStopSignals) {
    if (!is_ignored(signal)) ::signal(signal, SIG_DFL);
  }
  const sigset_t set = stop_signal_set();
  ::pthread_sigmask(held ? SIG_BLOCK : SIG_UNBLOCK, &set, nullptr);
}

}  // namespace hanji::base
