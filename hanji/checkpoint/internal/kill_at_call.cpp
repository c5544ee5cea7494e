#include "hanji/checkpoint/internal/kill_at_call.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>

namespace hanji::checkpoint::internal {
namespace {

bool changes_files(const __ptrace_syscall_info& info) {
  switch (info.entry.nr) {
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_ftruncate:
    case SYS_renameat:
    case SYS_renameat2:
    case SYS_mkdirat:
    case SYS_unlinkat:
#ifdef SYS_rename
    case SYS_rename:
    case SYS_mkdir:
    case SYS_rmdir:
    case SYS_unlink:
#endif
      return true;
    case SYS_openat: return (info.entry.args[2] & O_CREAT) != 0;
#ifdef SYS_open
    case SYS_open: return (info.entry.args[1] & O_CREAT) != 0;
#endif
    default: return false;
  }
}

// Lets the child run to its next stop. Returns false when it has ended.
bool run_to_stop(pid_t child, int signal, int& status) {
  if (::ptrace(PTRACE_SYSCALL, child, nullptr, signal) != 0 && errno != ESRCH) {
    throw std::runtime_error("ptrace");
  }
  if (::waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid");
  return WIFSTOPPED(status);
}

pid_t start_traced(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(99);
    ::raise(SIGSTOP);
    work();
    ::_exit(0);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
    throw std::runtime_error("no child to trace");
  }
  constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
  if (::ptrace(PTRACE_SETOPTIONS, child, nullptr, kOptions) != 0) {
    throw std::runtime_error("ptrace options");
  }
  return child;
}

}  // namespace

Ending kill_at_call(int call, const std::function<void()>& work) {
  const pid_t child = start_traced(work);
  Ending ending;
  int status = 0;
  int signal = 0;
  while (run_to_stop(child, signal, status)) {
    const bool at_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
    signal = at_call ? 0 : WSTOPSIG(status);
    __ptrace_syscall_info info{};
    if (!at_call || ::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) <= 0) continue;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY || !changes_files(info)) continue;
    if (++ending.num_calls < call) continue;
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    ending.killed = true;
    return ending;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw std::runtime_error("the child ended with status " + std::to_string(status));
  }
  return ending;
}

}  // namespace hanji::checkpoint::internal
