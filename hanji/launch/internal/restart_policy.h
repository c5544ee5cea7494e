#pragma once

#include <chrono>
#include <csignal>
#include <string>

#include "hanji/launch/restart.h"

namespace hanji::launch {

// Decided for every program of ours; see the table of codes.
inline constexpr int kRequeueExit = 75;
inline constexpr int kInterruptedExit = 130;

/// Set for a program that saves when a stop signal comes.
inline int stopped_exit(int signal) { return signal == SIGINT ? kInterruptedExit : kRequeueExit; }

struct RestartDecision {
  bool restart = false;
  std::chrono::milliseconds pause{0};
  std::string text;  ///< One line for people; empty if there is nothing to say.
};

/// Decides, and remembers for it, how attempts ended.
class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartOptions& options) : options_(options) {}

  /// After an attempt that ended after `lived`.
  RestartDecision after(const Outcome& outcome, std::chrono::nanoseconds lived);

 private:
  /// What makes two failures the same one. Which rank it was does not: memory may run out on any.
  struct Failure {
    int exit_code = 0;
    int signal = 0;
    Code code = Code::kOk;
    int64_t step = -1;
    bool operator==(const Failure&) const = default;
  };

  bool is_same(const Failure& failure, std::chrono::nanoseconds lived) const;

  const RestartOptions& options_;
  int restarts_ = 0;
  int same_ = 0;  ///< Failures in a row that were `last_`.
  Failure last_;
};

}  // namespace hanji::launch
