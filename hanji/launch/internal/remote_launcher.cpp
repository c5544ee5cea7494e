#include "hanji/launch/internal/remote_launcher.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "hanji/base/env.h"
#include "hanji/base/socket.h"
#include "hanji/launch/pointers_to.h"
#include "hanji/shm/liveness.h"

namespace hanji::launch {
namespace {

/// posix_spawn with this standard input; 0 or an error number.
int spawn(std::vector<std::string> command, int input, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);  // The command ignores it, which a program would inherit.
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> environment = base::child_environment({});
  const int error = ::posix_spawnp(&pid, command[0].c_str(), &actions, &attributes,
                                   pointers_to(command).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error;
}

}  // namespace

RemoteLauncher::RemoteLauncher(pid_t pid, base::Fd pidfd, base::Fd input)
    : pid_(pid), pidfd_(std::move(pidfd)), input_(std::move(input)) {}

RemoteLauncher::RemoteLauncher(RemoteLauncher&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      input_(std::move(other.input_)) {}

RemoteLauncher::~RemoteLauncher() {
  if (!running()) return;
  kill();
  ::waitpid(pid_, nullptr, 0);
}

Result<RemoteLauncher> RemoteLauncher::start(const std::vector<std::string>& command) {
  HANJI_ASSIGN_OR_RETURN(auto ends, base::socket_pair(base::SocketKind::kStream));
  pid_t pid = -1;
  const int error = spawn(command, ends.second.get(), pid);
  if (error != 0) return base::from_errno("start " + command[0], error);
  auto pidfd = shm::open_pidfd(pid);
  RemoteLauncher launcher(pid, pidfd.ok() ? *std::move(pidfd) : base::Fd(), std::move(ends.first));
  if (!pidfd.ok()) return pidfd.status();
  return launcher;
}

void RemoteLauncher::say(std::string_view line) const {
  if (!input_.valid()) return;
  const std::string text = std::string(line) + "\n";
  static_cast<void>(base::send_message(input_.get(), std::as_bytes(std::span(text)), {},
                                       base::Deadline::after(std::chrono::seconds(1))));
}

void RemoteLauncher::kill() const {
  if (running()) ::kill(-pid_, SIGKILL);
}

std::optional<int> RemoteLauncher::take_end() {
  int status = 0;
  if (!running() || ::waitpid(pid_, &status, WNOHANG) != pid_) return {};
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace hanji::launch
