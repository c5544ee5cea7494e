#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/fd.h"
#include "hanji/base/status.h"

namespace hanji::launch {

/// A program that reaches a host and runs our launcher there; what we say is its standard input. It
/// leads a process group, so a terminal's Ctrl-C does not cut the line before our words.
///
/// The destructor kills and reaps it if it still runs.
class RemoteLauncher {
 public:
  /// Errors  kNotFound, kInvalidArgument if the program cannot be started.
  static Result<RemoteLauncher> start(const std::vector<std::string>& command);
  RemoteLauncher(RemoteLauncher&& other) noexcept;
  RemoteLauncher& operator=(RemoteLauncher&&) = delete;
  ~RemoteLauncher();

  int pidfd() const { return pidfd_.get(); }
  bool running() const { return pid_ > 0; }
  /// One line. Who is gone does not hear it.
  void say(std::string_view line) const;
  /// Ends its standard input.
  void release() { input_.reset(); }
  void kill() const;
  /// Once, when it has ended: its exit code, or 128 + its signal.
  std::optional<int> take_end();

 private:
  RemoteLauncher(pid_t pid, base::Fd pidfd, base::Fd input);

  pid_t pid_;
  base::Fd pidfd_;
  base::Fd input_;
};

}  // namespace hanji::launch
