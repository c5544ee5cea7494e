#include "hanji/launch/ssh.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>

#include "hanji/base/secret.h"
#include "hanji/base/socket.h"
#include "hanji/launch/control_plane/token.h"
#include "hanji/launch/internal/announcement.h"
#include "hanji/launch/internal/remote_launcher.h"
#include "hanji/launch/internal/signal_relay.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;

constexpr int kUnreachable = 255;  // Of ssh itself.
constexpr int kUnreachableExit = 2;
/// The launchers end their ranks themselves, which takes at most 10.5 s.
constexpr auto kOwnTime = 14s;
constexpr auto kForcedTime = 14s;
constexpr int kFirstPort = 20'000;
constexpr int kNumPorts = 10'000;

bool is_host_letter(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
         std::string_view("._-@:%").find(letter) != std::string_view::npos;
}

Result<RemoteHost> parse_host(std::string_view text) {
  const Status bad = base::invalid_argument(
      fmt::format("'{}' is no host; write NAME, NAME:RANKS or [ADDRESS]:RANKS", text));
  RemoteHost host;
  const size_t close = text.starts_with('[') ? text.find(']') : text.npos;
  const size_t colon = close == text.npos ? text.find(':') : text.find(':', close);
  if (colon != text.npos) {
    const auto ranks = parse_integer(text.substr(colon + 1));
    if (!ranks || *ranks < 1) return bad;
    host.ranks = *ranks;
  }
  std::string_view name = text.substr(0, colon);
  if (close != text.npos) {
    if (close + 1 != name.size()) return bad;
    name = name.substr(1, close - 1);
  }
  const bool plain = !name.empty() && !name.starts_with('-') &&
                     std::all_of(name.begin(), name.end(), is_host_letter);
  if (!plain) return bad;
  host.name = name;
  return host;
}

/// What a user's part does not belong to: "user@a" is reached as "a" by the others.
std::string bare(const std::string& name) { return name.substr(name.find('@') + 1); }

Result<base::HostPort> rendezvous_of(const SshOptions& options) {
  if (options.rendezvous) return *options.rendezvous;
  uint16_t drawn = 0;
  HANJI_RETURN_IF_ERROR(base::fill_random(std::as_writable_bytes(std::span(&drawn, 1))));
  return base::HostPort{bare(options.hosts.front().name), kFirstPort + drawn % kNumPorts};
}

std::string remote_line(const SshOptions& options, size_t node, const std::string& rendezvous) {
  std::vector<std::string> words = {options.launcher.string(),
                                    "run",
                                    "--nnodes",
                                    std::to_string(options.hosts.size()),
                                    "--node-rank",
                                    std::to_string(node),
                                    "--rendezvous",
                                    rendezvous,
                                    "--token-fd",
                                    "0"};
  const int ranks = options.hosts[node].ranks;
  if (ranks > 0) words.insert(words.end(), {"-n", std::to_string(ranks)});
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  words.push_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  std::string line = "cd " + quote_for_shell(options.directory.string()) + " && exec";
  for (const std::string& word : words) line += " " + quote_for_shell(word);
  return line;
}

/// All launchers, and what to do as they end.
class Starter {
 public:
  Starter(const SshOptions& options, SignalRelay relay)
      : options_(options), relay_(std::move(relay)) {}

  Status start() {
    HANJI_ASSIGN_OR_RETURN(const base::HostPort rendezvous, rendezvous_of(options_));
    HANJI_ASSIGN_OR_RETURN(const Token token, make_token());
    for (size_t node = 0; node < options_.hosts.size(); ++node) {
      const std::vector<std::string> command = {
          options_.ssh,
          "-T",
          "-o",
          "BatchMode=yes",
          "-o",
          "ConnectTimeout=15",
          "--",
          options_.hosts[node].name,
          remote_line(options_, node, base::to_text(rendezvous))};
      HANJI_ASSIGN_OR_RETURN(RemoteLauncher launcher, RemoteLauncher::start(command));
      launcher.say(to_text(token));
      launchers_.push_back(std::move(launcher));
    }
    return {};
  }

  int watch() {
    while (any_running()) {
      wait();
      while (const auto signal = relay_.take()) pass_on(*signal);
      for (size_t node = 0; node < launchers_.size(); ++node) take_end(node);
      if (deadline_.passed()) press();
    }
    return exit_code_;
  }

 private:
  bool any_running() const {
    return std::any_of(launchers_.begin(), launchers_.end(),
                       [](const RemoteLauncher& launcher) { return launcher.running(); });
  }

  void wait() {
    std::vector<pollfd> polls = {{relay_.fd(), POLLIN, 0}};
    for (const RemoteLauncher& launcher : launchers_) {
      if (launcher.running()) polls.push_back({launcher.pidfd(), POLLIN, 0});
    }
    ::poll(polls.data(), polls.size(), deadline_.poll_ms());
  }

  void pass_on(int signal) {
    const bool again = signal == SIGINT && std::exchange(interrupted_, true);
    if (again) return press();
    const char* name = ::sigabbrev_np(signal);
    for (const RemoteLauncher& launcher : launchers_) launcher.say(name);
    notify(RankEventKind::kForwarded, fmt::format("SIG{} passed on to all hosts", name));
  }

  void take_end(size_t node) {
    const auto code = launchers_[node].take_end();
    if (!code || *code == 0) return;
    const bool unreachable = *code == kUnreachable;
    const std::string& name = options_.hosts[node].name;
    if (unreachable) {
      notify(
          RankEventKind::kFailed,
          fmt::format("host {} (node {}) cannot be reached: {} ended with code {}; see its words "
                      "above, and try `{} -o BatchMode=yes {} true`",
                      name, node, options_.ssh, *code, options_.ssh, name));
    }
    if (exit_code_ != 0) return;
    if (!unreachable) {
      notify(RankEventKind::kFailed,
             fmt::format("host {} (node {}): `{} {}` ended with code {}; see its words above", name,
                         node, options_.ssh, name, *code));
    }
    exit_code_ = unreachable ? kUnreachableExit : *code;
    deadline_ = base::Deadline::after(unreachable ? 0s : kOwnTime);
  }

  /// First the launchers hear that we are gone, then nobody is asked any more.
  void press() {
    const bool forced = std::exchange(released_, true);
    deadline_ = forced ? base::Deadline::never() : base::Deadline::after(kForcedTime);
    for (RemoteLauncher& launcher : launchers_) forced ? launcher.kill() : launcher.release();
  }

  void notify(RankEventKind kind, std::string text) const {
    if (options_.on_event) options_.on_event({kind, -1, -1, std::move(text)});
  }

  const SshOptions& options_;
  SignalRelay relay_;
  std::vector<RemoteLauncher> launchers_;
  base::Deadline deadline_ = base::Deadline::never();
  int exit_code_ = 0;
  bool interrupted_ = false;
  bool released_ = false;
};

}  // namespace

Result<std::vector<RemoteHost>> parse_hosts(std::string_view text) {
  std::vector<RemoteHost> hosts;
  while (true) {
    const size_t comma = text.find(',');
    HANJI_ASSIGN_OR_RETURN(RemoteHost host, parse_host(text.substr(0, comma)));
    hosts.push_back(std::move(host));
    if (comma == text.npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

std::string quote_for_shell(std::string_view word) {
  std::string quoted = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      quoted += "'\\''";
    } else {
      quoted += letter;
    }
  }
  return quoted + "'";
}

Result<int> run_on_hosts(const SshOptions& options) {
  if (options.hosts.empty() || options.command.empty()) {
    return base::invalid_argument("there are no hosts or no command to run on them");
  }
  HANJI_ASSIGN_OR_RETURN(SignalRelay relay, SignalRelay::install());
  Starter starter(options, std::move(relay));
  HANJI_RETURN_IF_ERROR(starter.start());
  return starter.watch();
}

}  // namespace hanji::launch
