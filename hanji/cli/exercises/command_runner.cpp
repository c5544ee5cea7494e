#include "hanji/cli/exercises/command_runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

#include "hanji/base/env.h"
#include "hanji/base/file.h"
#include "hanji/base/text.h"
#include "hanji/launch/pointers_to.h"
#include "hanji/shm/liveness.h"

namespace hanji::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> environment_with_this_command() {
  const std::string folder = base::executable_path().or_throw().parent_path();
  std::vector<std::string> lines;
  std::string path = folder;
  for (const base::NamedValue& one : base::read_environment()) {
    if (one.name == "PATH") {
      path += ":" + one.value;
    } else {
      lines.push_back(one.name + "=" + one.value);
    }
  }
  lines.push_back("PATH=" + path);
  return lines;
}

/// In a group of its own, with the signals that this process holds or ignores as they are by default.
pid_t start_in_group(std::vector<std::string>& words, const fs::path& folder, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t none, ignored;
  sigemptyset(&none);
  sigemptyset(&ignored);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&ignored, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &ignored);
  std::vector<std::string> environment = environment_with_this_command();
  pid_t pid = -1;
  const int error =
      ::posix_spawnp(&pid, words[0].c_str(), &actions, &attributes,
                     launch::pointers_to(words).data(), launch::pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw Error(base::from_errno("start " + words[0], error));
  return pid;
}

int reap_command(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

bool CommandRunner::waits_for(int pidfd, const base::Deadline& deadline) {
  while (!deadline.passed()) {
    pollfd ended{pidfd, POLLIN, 0};
    if (::poll(&ended, 1, std::min(100, deadline.poll_ms())) == 1) return true;
    if (const auto signal = poll_signal_()) {
      signal_ = *signal;
      return false;
    }
  }
  return false;
}

CommandEnd CommandRunner::run(std::vector<std::string> words, const fs::path& folder,
                              std::chrono::seconds limit) {
  const base::Fd output(::memfd_create("hanji_exercise", MFD_CLOEXEC));
  if (!output.valid()) throw Error(base::from_errno("create a memfd for the output", errno));
  const pid_t pid = start_in_group(words, folder, output.get());
  const base::Fd ended = shm::open_pidfd(pid).or_throw();
  CommandEnd end;
  if (!waits_for(ended.get(), base::Deadline::after(limit))) {
    end.timed_out = true;
    ::kill(-pid, SIGTERM);  // ranks have files to remove
    pollfd last{ended.get(), POLLIN, 0};
    ::poll(&last, 1, 5'000);
  }
  ::kill(-pid, SIGKILL);  // what it has left behind, too
  end.exit_code = reap_command(pid);
  if (signal_ != 0) throw Error(base::cancelled("stopped by a signal"));
  end.output = base::read_file(fmt::format("/proc/self/fd/{}", output.get())).or_throw();
  return end;
}

std::string last_lines(const std::string& output, size_t lines) {
  auto parts = base::split(output, '\n');
  while (!parts.empty() && parts.back().empty()) parts.pop_back();
  std::string text;
  for (size_t i = parts.size() - std::min(lines, parts.size()); i < parts.size(); ++i) {
    text += (text.empty() ? "" : "\n") + std::string(parts[i]);
  }
  return text;
}

}  // namespace hanji::cli
