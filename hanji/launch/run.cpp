#include "hanji/launch/run.h"

#include <fmt/format.h>

#include "hanji/base/env.h"
#include "hanji/launch/restart.h"
#include "hanji/launch/roster.h"
#include "hanji/topology/machine.h"

namespace hanji::launch {

Result<Outcome> run_program(const RunOptions& options) {
  if (options.ranks < 0) {
    return base::invalid_argument(fmt::format(
        "ranks is {}: give a positive number, or 0 for one per usable core", options.ranks));
  }
  HANJI_ASSIGN_OR_RETURN(const topology::Machine machine, topology::read_machine());
  LaunchOptions launch_options;
  launch_options.command = options.command;
  launch_options.ranks = options.ranks == 0 ? machine.usable_cores : options.ranks;
  launch_options.cpus = topology::cpus_per_rank(machine, launch_options.ranks);
  launch_options.hosts = options.hosts;
  launch_options.log_directory = options.log_directory;
  launch_options.rank0_output = Rank0Output::kLogAndLauncher;
  launch_options.on_event = options.on_event;
  launch_options.on_death = options.on_death;
  launch_options.adopts_orphans = options.adopts_orphans;
  const bool oversubscribed = launch_options.cpus.empty();
  if (oversubscribed && !base::read(base::Variable::kOmpNumThreads)) {
    launch_options.environment.push_back("OMP_NUM_THREADS=1");
  }
  const RestartOptions restarts{.max_restarts = options.max_restarts};
  if (options.log_directory.empty()) return launch_with_restarts(launch_options, restarts);
  Roster roster(options.log_directory / "ranks.json");
  launch_options.on_event = [&](const RankEvent& event) {
    roster.note(event);
    if (options.on_event) options.on_event(event);
  };
  auto outcome = launch_with_restarts(std::move(launch_options), restarts);
  // Without it a run goes on, only `hanji debug` needs a process id then.
  const Status written = roster.status();
  roster.remove();
  if (!written.ok() && options.on_event) {
    options.on_event({RankEventKind::kNotKept, -1, -1,
                      written.message() + "; `hanji debug` did not find this run by its folder"});
  }
  return outcome;
}

}  // namespace hanji::launch
