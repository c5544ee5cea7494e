#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/train/stop_signal.h"

namespace hanji::cli {

/// How a command ended, and what it wrote to stdout and stderr.
struct CommandEnd {
  int exit_code = 0;  ///< 128 + the signal that ended it.
  bool timed_out = false;
  std::string output;
};

/// Runs commands one after another, each in a process group that ends with its deadline, and at a stop signal.
///
/// Thread  make it before other threads start, as train::StopSignal.
class CommandRunner {
 public:
  CommandRunner() : signals_(train::StopSignal::create().or_throw()) {}

  /// Runs `words` in `folder`, with the folder of this program before the others in PATH. stdin is empty.
  /// Errors  throws Error: as base::from_errno() where it cannot be started; kCancelled after a stop signal, when
  ///         all of the group got TERM.
  CommandEnd run(std::vector<std::string> words, const std::filesystem::path& folder,
                 std::chrono::seconds limit);

  /// The stop signal that ended run(); 0: none.
  int stop_signal() const { return signal_; }

 private:
  bool waits_for(int pidfd, const base::Deadline& deadline);

  train::StopSignal signals_;
  int signal_ = 0;
};

/// The last `lines` lines of what a command wrote.
std::string last_lines(const std::string& output, size_t lines);

}  // namespace hanji::cli
