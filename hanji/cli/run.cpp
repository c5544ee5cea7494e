#include <iostream>
#include <memory>

#include "hanji/cli/exit_code.h"
#include "hanji/cli/host_options.h"
#include "hanji/cli/notify.h"
#include "hanji/cli/verbs.h"
#include "hanji/launch/run.h"
#include "hanji/launch/ssh.h"

namespace hanji::cli {
namespace {

/// The exit code of all ranks on this host, or on all hosts.
Result<int> run_ranks(launch::RunOptions options, const HostOptions& hosts) {
  const bool goes_on = options.on_death == launch::OnDeath::kContinue;
  options.on_event = goes_on ? notify_at_once : notify;
  options.adopts_orphans = true;
  if (!hosts.hosts.empty()) {
    HANJI_ASSIGN_OR_RETURN(launch::SshOptions ssh, over_ssh(hosts, options));
    ssh.on_event = notify_at_once;
    return launch::run_on_hosts(ssh);
  }
  HANJI_ASSIGN_OR_RETURN(options.hosts, multi_host(hosts));
  HANJI_ASSIGN_OR_RETURN(const launch::Outcome outcome, launch::run_program(options));
  return outcome.exit_code;
}

}  // namespace

void add_run(Verb command) {
  const Verb verb =
      command.add_verb("run", "Start any program as ranks of this host, or of several");
  auto options = std::make_shared<launch::RunOptions>();
  auto logs = std::make_shared<std::string>();
  verb.add_option("-n,--ranks", &options->ranks,
                  "processes on this host; default, and 0: one per usable core")
      .type_name("N");
  verb.add_option("--max-restarts", &options->max_restarts,
                  "start all ranks again when one fails, at most so often; default: 0")
      .type_name("N");
  const int stop = static_cast<int>(launch::OnDeath::kStop);
  const int go_on = static_cast<int>(launch::OnDeath::kContinue);
  auto on_death = std::make_shared<int>(stop);
  verb.add_option("--on-death", on_death.get(),
                  "when a rank dies: stop the others, or let them continue (Group::survivors()); "
                  "default: stop")
      .translate({{"stop", stop}, {"continue", go_on}})
      .type_name("stop|continue");
  verb.add_option("--logs", logs.get(), "folder for one log per rank; default: the terminal")
      .type_name("DIR");
  const auto hosts = add_host_options(verb);
  verb.add_option("command", &options->command, "program and its arguments").required();
  verb.positionals_at_end();
  verb.on_chosen([=] {
    options->log_directory = *logs;
    options->on_death = static_cast<launch::OnDeath>(*on_death);
    const auto code = run_ranks(*options, *hosts);
    if (code.ok()) return *code;
    std::cerr << "hanji: " << code.status().message() << "\n";
    return exit_code(code.status().code());
  });
}

}  // namespace hanji::cli
