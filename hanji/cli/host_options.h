#pragma once

#include <memory>
#include <optional>
#include <string>

#include "hanji/base/status.h"
#include "hanji/cli/command_line.h"
#include "hanji/launch/run.h"
#include "hanji/launch/ssh.h"

namespace hanji::cli {

/// The options of `hanji run` that speak of other hosts.
struct HostOptions {
  int num_nodes = 1;
  int node = -1;
  std::string rendezvous;
  std::string interface;
  std::string token_file;
  int token_fd = -1;
  double join_seconds = 300;
  double silence_seconds = 15;
  std::string hosts;
  std::string ssh = "ssh";
};

std::shared_ptr<HostOptions> add_host_options(Verb verb);

/// What this host's launcher must know; nothing if there is no other host.
/// Errors  kInvalidArgument for what is missing or contradicts itself, with the way out.
Result<std::optional<launch::MultiHost>> multi_host(const HostOptions& options);

/// What `--hosts` asks for.
Result<launch::SshOptions> over_ssh(const HostOptions& options, const launch::RunOptions& run);

}  // namespace hanji::cli
