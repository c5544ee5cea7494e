#include "hanji/launch/internal/start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "hanji/base/advice.h"
#include "hanji/base/limits.h"
#include "hanji/base/stop_signals.h"
#include "hanji/shm/liveness.h"

namespace hanji::launch {
namespace {

/// What a child could not do. Written whole or not at all: far below PIPE_BUF.
enum class Stage : int { kNone, kParent, kAffinity, kOutput, kInherit, kExec };

struct StartFailure {
  int rank = 0;
  Stage stage = Stage::kNone;
  int error = 0;
};

std::string_view describe(Stage stage) {
  switch (stage) {
    case Stage::kNone: return "nothing";
    case Stage::kParent: return "die with the launcher (prctl PR_SET_PDEATHSIG)";
    case Stage::kAffinity: return "pin itself to its CPUs (sched_setaffinity)";
    case Stage::kOutput: return "open its standard streams (dup2)";
    case Stage::kInherit: return "keep its descriptors (fcntl)";
    case Stage::kExec: return "start the program";
  }
  return "unknown";
}

cpu_set_t mask_of(const std::vector<int>& cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &mask);
  }
  return mask;
}

bool move_to(int from, int to) { return from < 0 || ::dup2(from, to) == to; }

/// Async-signal-safe. The stage that failed, errno telling why.
Stage prepare(const StartSpec& spec, const cpu_set_t& mask, pid_t launcher) {
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return Stage::kParent;
  if (::getppid() != launcher) ::_exit(1);  // It died before the line above.
  if (!spec.cpus.empty() && ::sched_setaffinity(0, sizeof(mask), &mask) != 0) {
    return Stage::kAffinity;
  }
  const bool moved = move_to(spec.input, STDIN_FILENO) && move_to(spec.output, STDOUT_FILENO) &&
                     move_to(spec.error, STDERR_FILENO);
  if (!moved) return Stage::kOutput;
  for (const int fd : spec.inherited) {
    if (::fcntl(fd, F_SETFD, 0) != 0) return Stage::kInherit;
  }
  return Stage::kNone;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// What follows the fork in the launcher.
Result<RankProcess> adopt(StartSpec& spec, pid_t pid) {
  if (pid < 0) return base::no_more_processes(fmt::format("fork rank {}", spec.rank), errno);
  ::setpgid(pid, pid);  // The child does it too, so the group exists for both, in either order.
  RankProcess process(spec.rank, pid, base::Fd(), std::move(spec.control));
  HANJI_ASSIGN_OR_RETURN(base::Fd pidfd, shm::open_pidfd(pid));
  process.set_pidfd(std::move(pidfd));
  return process;
}

}  // namespace

Result<StartReport> StartReport::create() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return base::from_errno("pipe", errno);
  StartReport report;
  report.read_end_ = base::Fd(ends[0]);
  report.write_end_ = base::Fd(ends[1]);
  return report;
}

Status StartReport::wait_for_all(const std::vector<std::string>& command) {
  write_end_.reset();  // Now the end of the pipe comes when the last child has called exec.
  StartFailure failure;
  ssize_t count = 0;
  do {
    count = ::read(read_end_.get(), &failure, sizeof(failure));
  } while (count < 0 && errno == EINTR);
  if (count != sizeof(failure)) return {};
  const std::string what = fmt::format("rank {} could not {} '{}'", failure.rank,
                                       describe(failure.stage), command.front());
  if (failure.stage == Stage::kAffinity) {
    return base::invalid_argument(
        base::with_advice(base::from_errno(what, failure.error).message(),
                          "choose CPUs of this process's own mask (taskset -p $$)"));
  }
  if (failure.stage == Stage::kExec && failure.error == ENOENT) {
    return base::not_found(what +
                           ": there is none of this name; name a program of PATH, or a path "
                           "such as ./program");
  }
  std::error_code ignored;
  if (failure.stage == Stage::kExec && std::filesystem::is_directory(command.front(), ignored)) {
    return base::invalid_argument(what + ": it is a folder; name a program");
  }
  return base::from_errno(what, failure.error);
}

Result<RankProcess> start_program(StartSpec spec, const StartReport& report) {
  const cpu_set_t mask = mask_of(spec.cpus);
  const std::vector<char*> arguments = pointers(spec.command);
  const std::vector<char*> environment = pointers(spec.environment);
  const pid_t launcher = ::getpid();
  const base::HeldStopSignals held;  // The handler of the launcher is not for its copy.
  const pid_t pid = ::fork();
  if (pid == 0) {
    StartFailure failure{spec.rank, prepare(spec, mask, launcher), 0};
    if (failure.stage == Stage::kNone) {
      failure.stage = Stage::kExec;
      // A launcher that ignores these does so for itself: an exec would hand it on.
      for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
      base::reset_stop_signals(spec.holds_stop_signals);
      ::execvpe(arguments[0], arguments.data(), environment.data());
    }
    failure.error = errno;
    // If nobody reads any more, the launcher is dying and so are we.
    [[maybe_unused]] const ssize_t told = ::write(report.write_end(), &failure, sizeof(failure));
    ::_exit(127);
  }
  return adopt(spec, pid);
}

Result<RankProcess> start_copy(StartSpec spec, const std::function<int()>& body) {
  const cpu_set_t mask = mask_of(spec.cpus);
  const pid_t launcher = ::getpid();
  std::cout.flush();  // Else the copy would write what is buffered a second time.
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    spec.control.reset();
    const Stage failed = prepare(spec, mask, launcher);
    const int code = failed == Stage::kNone ? body() : 127;
    std::cout.flush();
    std::fflush(nullptr);
    ::_exit(code);
  }
  return adopt(spec, pid);
}

}  // namespace hanji::launch
