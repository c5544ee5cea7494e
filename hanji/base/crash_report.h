#pragma once

#include <string_view>

namespace hanji::base {

/// From now on a SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT of this process first writes `who`, the
/// signal, the address and the stack of the thread to `fd`, then ends it as before.
///
/// The stack names exported functions and gives module and offset of the others (addr2line -e).
/// Signals that the program handles itself stay as they are.
/// Thread  once per process; a later call changes `fd` and `who` only.
void report_crashes(int fd, std::string_view who);

}  // namespace hanji::base
