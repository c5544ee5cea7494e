#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "hanji/base/fd.h"
#include "hanji/launch/launcher.h"

namespace hanji::launch {

/// A started rank: leader of a process group of its own, our child.
///
/// Its pidfd turns readable when it dies. The destructor kills and reaps what still runs, so an
/// early return leaves neither orphan nor zombie.
class RankProcess {
 public:
  RankProcess(int rank, pid_t pid, base::Fd pidfd, base::Fd control);
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess();

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  void set_pidfd(base::Fd pidfd) { pidfd_ = std::move(pidfd); }
  /// Our end of the rank's control socket; -1 once the rank closed its end.
  int control() const { return control_.get(); }
  bool running() const { return running_; }

  /// To the whole process group, so that a shell's children get it too.
  void signal(int signal) const;
  /// In a copy of the launcher, where the process is a sibling and not a child.
  void forget();
  /// Reads what the rank told us on its control socket, without waiting.
  void take_reports();
  /// Whether it told why it is about to fail.
  bool reported() const { return !report_.ok(); }
  /// The stack that it told since the last call; empty if none.
  std::string take_stack() { return std::exchange(stack_, {}); }
  /// Reaps the dead rank and kills what it left in its process group. Waits if it still runs.
  RankExit reap();

 private:
  int rank_;
  pid_t pid_;
  base::Fd pidfd_;
  base::Fd control_;
  bool running_ = true;
  Status report_;
  std::string stack_;
};

}  // namespace hanji::launch
