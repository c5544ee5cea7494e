#pragma once

#include <string_view>

namespace hanji::base {

/// A message socket that gets a crash report too, as one message behind the byte `tag`. It is
/// duplicated; -1: none.
struct CrashCopy {
  int fd = -1;
  char tag = 'S';
};

/// From now on a SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT of this process first writes `who`, the
/// signal, the address and the stack of the thread to `fd`, then ends it as before. SIGURG, which
/// nobody sends otherwise, writes the stack and lets it go on.
///
/// The stack names exported functions and gives module and offset of all; symbolise() names more.
/// Signals that the program handles itself stay as they are.
/// Thread  once per process; a later call changes `fd`, `who` and `copy` only.
void report_crashes(int fd, std::string_view who, CrashCopy copy = {});

}  // namespace hanji::base
