#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/tcp.h"
#include "hanji/launch/launcher.h"

namespace hanji::launch {

/// A host to start ranks on, as ssh knows it.
struct RemoteHost {
  std::string name;  ///< "gpu07", "user@gpu07", an address.
  int ranks = 0;     ///< 0: one per usable core there.

  bool operator==(const RemoteHost&) const = default;
};

/// "a:4,user@b:4,[::1]:2,c".
/// Errors  kInvalidArgument for an empty name, one that could be an option, or no number.
Result<std::vector<RemoteHost>> parse_hosts(std::string_view text);

/// A word that a POSIX shell reads back as `word`, whatever is in it.
std::string quote_for_shell(std::string_view word);

struct SshOptions {
  std::vector<RemoteHost> hosts;
  std::string ssh = "ssh";                   ///< The program that reaches a host.
  std::vector<std::string> command;          ///< Program and arguments, found on each host.
  std::filesystem::path launcher;            ///< This command's path, the same on all hosts.
  std::filesystem::path directory;           ///< Where the ranks start, on all hosts.
  std::optional<base::HostPort> rendezvous;  ///< Else the first host's name and a port drawn.
  std::vector<std::string> arguments;        ///< More words for `hanji run` on every host.
  std::function<void(const RankEvent&)> on_event;
};

/// Runs `hanji run` on every host over ssh, and ends all when one fails, when a host cannot be
/// reached, or on stop signals, which reach the ranks as signals.
///
/// The token is drawn here and written to the standard input of ssh, which stays open: its end tells
/// a launcher over there that this one is gone. It is in no argument and no variable.
///
/// Result  the exit code of the first launcher that failed; 2 if its host could not be reached.
/// Errors  kInvalidArgument, kNotFound if ssh cannot be started.
Result<int> run_on_hosts(const SshOptions& options);

}  // namespace hanji::launch
