#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hanji/base/clock.h"

namespace hanji::cli {

/// How a command ended, and what it wrote to stdout and stderr.
struct CommandEnd {
  int exit_code = 0;  ///< 128 + the signal that ended it.
  bool timed_out = false;
  std::string output;
};

/// Runs commands one after another, each in a process group that ends with its deadline, and at a stop signal.
class CommandRunner {
 public:
  /// `poll_signal`: the stop signal that came since its last call, if any; never blocks.
  explicit CommandRunner(std::function<std::optional<int>()> poll_signal)
      : poll_signal_(std::move(poll_signal)) {}

  /// Runs `words` in `folder`, with the folder of this program before the others in PATH. stdin is empty.
  /// Errors  throws Error: as base::from_errno() where it cannot be started; kCancelled after a stop signal, when
  ///         all of the group got TERM.
  CommandEnd run(std::vector<std::string> words, const std::filesystem::path& folder,
                 std::chrono::seconds limit);

  /// The stop signal that ended run(); 0: none.
  int stop_signal() const { return signal_; }

 private:
  bool waits_for(int pidfd, const base::Deadline& deadline);

  std::function<std::optional<int>()> poll_signal_;
  int signal_ = 0;
};

/// The last `lines` lines of what a command wrote.
std::string last_lines(const std::string& output, size_t lines);

}  // namespace hanji::cli
