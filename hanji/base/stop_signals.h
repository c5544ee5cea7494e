#pragma once

#include <array>
#include <csignal>
#include <functional>
#include <thread>
#include <vector>

namespace hanji::base {

/// Signals that ask a run to save and end: by a terminal (INT, and HUP where it is closed), by a
/// scheduler or a system that shuts down.
inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

/// Those of them that this process obeys. One that its starter ignores remains ignored (nohup
/// ignores HUP), except INT, which every shell ignores for what it starts in the background.
std::vector<int> obeyed_stop_signals();

/// All stop signals, for pthread_sigmask().
/// Thread  async-signal-safe.
sigset_t stop_signal_set();

/// While it lives, stop signals to the calling thread stay pending.
class HeldStopSignals {
 public:
  HeldStopSignals();
  ~HeldStopSignals();
  HeldStopSignals(const HeldStopSignals&) = delete;
  HeldStopSignals& operator=(const HeldStopSignals&) = delete;

 private:
  sigset_t before_;
};

/// Starts a thread that stop signals never reach: they are the program's. It holds them from before it runs until it
/// is gone, as one that nobody reads any more, and that a thread lets through at its end, would end the process.
std::thread start_without_stop_signals(std::function<void()> body);

/// What a forked child does with stop signals before it calls exec: handlers of this program end,
/// ignored ones stay ignored.
/// `held`: they stay pending in the child and in the program that follows, until it reads them.
/// Thread  async-signal-safe.
void reset_stop_signals(bool held);

}  // namespace hanji::base
