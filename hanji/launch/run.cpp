#include "hanji/launch/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "hanji/base/env.h"
#include "hanji/launch/restart.h"
#include "hanji/launch/roster.h"
#include "hanji/topology/machine.h"
#include "hanji/topology/wait_policy.h"

namespace hanji::launch {
namespace {

/// Threads of OpenMP that each rank will have: of a list for nested teams ("4,2") the first.
int threads_of_rank(const LaunchOptions& options) {
  int threads = 1;
  for (const auto& cpus : options.cpus) threads = std::max(threads, static_cast<int>(cpus.size()));
  if (const auto text = base::read(base::Variable::kOmpNumThreads)) {
    threads = 1;
    std::from_chars(text->data(), text->data() + text->size(), threads);
  }
  return threads;
}

/// Decides how threads of a rank wait for one another, and says so where that is not as usual.
void let_threads_wait(const topology::Machine& machine, LaunchOptions& options) {
  topology::WaitFacts facts{.ranks = options.ranks,
                            .threads = threads_of_rank(options),
                            .cpus = topology::cpus_of(machine),
                            .setting = topology::wait_setting()};
  const bool is_open = topology::choose_wait_policy(facts).policy == topology::WaitPolicy::kRuntime;
  if (is_open && facts.threads > 1) facts.cpus_of_others = topology::look_at_others(machine);
  const topology::WaitChoice choice = topology::choose_wait_policy(facts);
  const std::vector<std::string> variables = topology::wait_variables(choice);
  options.environment.insert(options.environment.end(), variables.begin(), variables.end());
  if (variables.empty() || !options.on_event) return;
  options.on_event(
      {RankEventKind::kWaits, -1, -1, "the threads of each rank " + topology::describe(choice)});
}

}  // namespace

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
  let_threads_wait(machine, launch_options);
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
