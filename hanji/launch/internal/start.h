#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hanji/launch/internal/rank_process.h"

namespace hanji::launch {

/// How one rank starts. Everything is made before the fork: a forked copy of a process with
/// threads may only do what is safe in a signal handler until it calls exec.
struct StartSpec {
  int rank = 0;
  std::vector<int> cpus;                 ///< Pinned to these; empty: as the launcher.
  int input = -1;                        ///< Becomes stdin; -1: as the launcher's.
  int output = -1;                       ///< Becomes stdout.
  int error = -1;                        ///< Becomes stderr.
  base::Fd control;                      ///< Our end of the control socket, for the RankProcess.
  std::vector<int> inherited;            ///< Stay open across exec.
  bool holds_stop_signals = false;       ///< They stay pending until the program reads them.
  std::vector<std::string> command;      ///< Program and arguments.
  std::vector<std::string> environment;  ///< All of it.
};

/// Reports from children that did not reach their program.
class StartReport {
 public:
  static Result<StartReport> create();

  int write_end() const { return write_end_.get(); }
  /// Waits until every child runs its program or has told why it cannot. Call once, after the last.
  Status wait_for_all(const std::vector<std::string>& command);

 private:
  base::Fd read_end_;
  base::Fd write_end_;
};

/// Forks and execs; see StartReport for failures in the child.
Result<RankProcess> start_program(StartSpec spec, const StartReport& report);

/// Forks a copy that calls `body` and exits with its result.
Result<RankProcess> start_copy(StartSpec spec, const std::function<int()>& body);

}  // namespace hanji::launch
