#include "hanji/launch/run_program.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "hanji/base/env.h"
#include "hanji/base/file.h"
#include "hanji/launch/internal/sealed_file.h"
#include "hanji/launch/pointers_to.h"
#include "hanji/shm/liveness.h"

namespace hanji::launch {
namespace {

constexpr size_t kMaxOutput = size_t{64} << 20;

Result<pid_t> start(std::vector<std::string>& command, int input, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  std::vector<std::string> environment = base::child_environment({});
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, command[0].c_str(), &actions, nullptr,
                                   pointers_to(command).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return base::from_errno("start " + command[0], error);
  return pid;
}

/// Until its end or the deadline; false: it still runs.
bool has_ended(pid_t pid, const base::Deadline& deadline) {
  const auto pidfd = shm::open_pidfd(pid);
  if (!pidfd.ok()) return true;  // then waiting for it has no end but its own
  while (!deadline.passed()) {
    pollfd ended{pidfd->get(), POLLIN, 0};
    if (::poll(&ended, 1, deadline.poll_ms()) == 1) return true;
  }
  return false;
}

int reap(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Result<std::string> run_program(std::vector<std::string> command, std::string_view input,
                                const base::Deadline& deadline) {
  const std::string program = command[0] + (command.size() > 1 ? " " + command[1] : "");
  HANJI_ASSIGN_OR_RETURN(const base::Fd in, write_sealed(input, "input"));
  ::lseek(in.get(), 0, SEEK_SET);
  const base::Fd out(::memfd_create("hanji_output", MFD_CLOEXEC));
  if (!out.valid()) return base::from_errno("create a memfd for the output", errno);
  HANJI_ASSIGN_OR_RETURN(const pid_t pid, start(command, in.get(), out.get()));
  if (!has_ended(pid, deadline)) {
    ::kill(pid, SIGKILL);
    reap(pid);
    return base::timeout(fmt::format("{} did not end in time and was killed", program));
  }
  const int status = reap(pid);
  if (WIFSIGNALED(status)) {
    return base::internal(fmt::format("{} was killed by signal {}", program, WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) != 0) {
    return base::internal(fmt::format("{} exited with code {}", program, WEXITSTATUS(status)));
  }
  return base::read_file(fmt::format("/proc/self/fd/{}", out.get()), kMaxOutput);
}

}  // namespace hanji::launch
