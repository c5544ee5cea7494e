#include "hanji/cli/host_options.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "hanji/base/env.h"
#include "hanji/base/file.h"

namespace hanji::cli {
namespace {

using base::Variable;

Result<launch::Token> token_of(const HostOptions& options) {
  if (options.token_fd >= 0) return launch::read_token(options.token_fd);
  const std::string path = options.token_file.empty()
                               ? base::read(Variable::kHanjiTokenFile).value_or("")
                               : options.token_file;
  if (!path.empty()) return launch::read_token_file(path);
  return base::invalid_argument(
      "hosts prove to each other that they belong together: make a secret file, (umask 077; "
      "openssl "
      "rand -hex 32 > FILE), copy it to all hosts and give --token-file FILE");
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1e3));
}

Status check(const HostOptions& options) {
  if (options.num_nodes < 1) {
    return base::invalid_argument(fmt::format("--nnodes {}: give 1 or more", options.num_nodes));
  }
  if (options.node < 0 || options.node >= options.num_nodes) {
    return base::invalid_argument(
        fmt::format("--nnodes {} needs a --node-rank from 0 to {} on each host", options.num_nodes,
                    options.num_nodes - 1));
  }
  if (options.join_seconds > 0 && options.silence_seconds > 0) return {};
  return base::invalid_argument("--join and --silence are seconds, more than 0");
}

}  // namespace

std::shared_ptr<HostOptions> add_host_options(Verb verb) {
  auto options = std::make_shared<HostOptions>();
  const char* group = "Several hosts";
  const auto add = [&](const char* name, Target value, const char* doc, const char* type) {
    verb.add_option(name, value, doc).type_name(type).group(group);
  };
  add("--nnodes", &options->num_nodes, "hosts; start hanji run on each; default: 1", "N");
  add("--node-rank", &options->node, "which of them this is; 0 serves the others", "R");
  add("--rendezvous", &options->rendezvous, "where: an address of node 0; or HANJI_RENDEZVOUS",
      "HOST:PORT");
  add("--interface", &options->interface,
      "interface or address between hosts; default: the route's; or HANJI_INTERFACE", "NAME");
  add("--token-file", &options->token_file, "the run's secret, mode 0600; or HANJI_TOKEN_FILE",
      "FILE");
  add("--token-fd", &options->token_fd,
      "read the secret from this descriptor, whose end then ends the run", "N");
  add("--join", &options->join_seconds, "wait so long for all hosts; default: 300", "SECONDS");
  add("--silence", &options->silence_seconds,
      "a host that says nothing so long is lost; default: 15", "SECONDS");
  add("--hosts", &options->hosts, "start them all from here over ssh: a:4,user@b:4", "LIST");
  add("--ssh", &options->ssh, "the program that reaches a host; default: ssh", "PROGRAM");
  return options;
}

Result<std::optional<launch::MultiHost>> multi_host(const HostOptions& options) {
  if (options.num_nodes == 1 && options.node < 0) return std::optional<launch::MultiHost>();
  HANJI_RETURN_IF_ERROR(check(options));
  const std::string place = options.rendezvous.empty()
                                ? base::read(Variable::kHanjiRendezvous).value_or("")
                                : options.rendezvous;
  if (place.empty()) {
    return base::invalid_argument(
        "--nnodes needs --rendezvous HOST:PORT, an address of node 0 and a free port there");
  }
  launch::MultiHost run;
  HANJI_ASSIGN_OR_RETURN(run.rendezvous, base::parse_host_port(place));
  HANJI_ASSIGN_OR_RETURN(run.token, token_of(options));
  run.num_nodes = options.num_nodes;
  run.node = options.node;
  run.interface = options.interface.empty() ? base::read(Variable::kHanjiInterface).value_or("")
                                            : options.interface;
  run.join_time = milliseconds(options.join_seconds);
  run.silence = milliseconds(options.silence_seconds);
  run.lifeline = options.token_fd;
  return std::optional(std::move(run));
}

Result<launch::SshOptions> over_ssh(const HostOptions& options, const launch::RunOptions& run) {
  if (options.num_nodes != 1 || options.node >= 0 || options.token_fd >= 0 ||
      !options.token_file.empty() || run.ranks != 0 || run.max_restarts != 0 ||
      run.on_death != launch::OnDeath::kStop) {
    return base::invalid_argument(
        "--hosts decides --nnodes, --node-rank, -n (a:4) and the token itself, restarts nothing "
        "and stops all after a death: leave those options out");
  }
  launch::SshOptions ssh;
  HANJI_ASSIGN_OR_RETURN(ssh.hosts, launch::parse_hosts(options.hosts));
  ssh.ssh = options.ssh;
  ssh.command = run.command;
  HANJI_ASSIGN_OR_RETURN(ssh.launcher, base::executable_path());
  ssh.directory = std::filesystem::current_path();
  if (!options.rendezvous.empty()) {
    HANJI_ASSIGN_OR_RETURN(ssh.rendezvous, base::parse_host_port(options.rendezvous));
  }
  ssh.arguments = {"--join", std::to_string(options.join_seconds), "--silence",
                   std::to_string(options.silence_seconds)};
  if (!options.interface.empty()) {
    ssh.arguments.insert(ssh.arguments.end(), {"--interface", options.interface});
  }
  if (!run.log_directory.empty()) {
    ssh.arguments.insert(ssh.arguments.end(), {"--logs", run.log_directory.string()});
  }
  return ssh;
}

}  // namespace hanji::cli
