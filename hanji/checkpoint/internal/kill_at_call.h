#pragma once

#include <functional>

namespace hanji::checkpoint::internal {

/// How a child ended that was to be killed at one of its system calls.
struct Ending {
  bool killed = false;  ///< False: it did all its work before it came so far.
  int num_calls = 0;    ///< Calls that it had begun, the fatal one included.
};

/// Runs `work` in a forked child and kills it with SIGKILL when it enters its `call`-th system call
/// that changes a file system (write, create, fsync, rename, make or remove a name), before the
/// kernel carries the call out. Counted from 1.
/// Errors  throws std::runtime_error when the system allows no tracing.
Ending kill_at_call(int call, const std::function<void()>& work);

}  // namespace hanji::checkpoint::internal
