#include <CLI/CLI.hpp>
#include <iostream>
#include <map>

#include "hanji/cli/exit_code.h"
#include "hanji/cli/host_options.h"
#include "hanji/cli/tell.h"
#include "hanji/cli/verbs.h"
#include "hanji/launch/run.h"
#include "hanji/launch/ssh.h"

namespace hanji::cli {
namespace {

/// The exit code of all ranks on this host, or on all hosts.
Result<int> run_ranks(launch::RunOptions options, const HostOptions& hosts) {
  options.on_event = tell;
  if (!hosts.hosts.empty()) {
    HANJI_ASSIGN_OR_RETURN(launch::SshOptions ssh, over_ssh(hosts, options));
    ssh.on_event = tell;
    return launch::run_on_hosts(ssh);
  }
  HANJI_ASSIGN_OR_RETURN(options.hosts, multi_host(hosts));
  HANJI_ASSIGN_OR_RETURN(const launch::Outcome outcome, launch::run_program(options));
  return outcome.exit_code;
}

}  // namespace

void add_run(CLI::App& app, Run& run) {
  CLI::App* verb =
      app.add_subcommand("run", "Start any program as ranks of this host, or of several");
  auto options = std::make_shared<launch::RunOptions>();
  auto logs = std::make_shared<std::string>();
  verb->add_option("-n,--ranks", options->ranks,
                   "processes on this host; default: one per physical core")
      ->type_name("N");
  verb->add_option("--max-restarts", options->max_restarts,
                   "start all ranks again when one fails, at most so often; default: 0")
      ->type_name("N");
  const std::map<std::string, launch::OnDeath> choices = {{"stop", launch::OnDeath::kStop},
                                                          {"continue", launch::OnDeath::kContinue}};
  verb->add_option("--on-death", options->on_death,
                   "when a rank dies: stop the others, or let them continue (Group::survivors()); "
                   "default: stop")
      ->transform(CLI::CheckedTransformer(choices))
      ->type_name("stop|continue");
  verb->add_option("--logs", *logs, "folder for one log per rank; default: the terminal")
      ->type_name("DIR");
  const auto hosts = add_host_options(*verb);
  verb->add_option("command", options->command, "program and its arguments")->required();
  verb->positionals_at_end();
  verb->callback([=, &run] {
    run = [=] {
      options->log_directory = *logs;
      const auto code = run_ranks(*options, *hosts);
      if (code.ok()) return *code;
      std::cerr << "hanji: " << code.status().message() << "\n";
      return exit_code(code.status().code());
    };
  });
}

}  // namespace hanji::cli
