#include "hanji/world/spawn.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "hanji/base/exception.h"
#include "hanji/launch/launcher.h"
#include "hanji/topology/machine.h"
#include "hanji/world/internal/state.h"

namespace hanji::world {
namespace {

constexpr int kMaxLooks = 20;
constexpr auto kBetweenLooks = std::chrono::milliseconds(1);

int num_threads() {
  std::error_code error;
  const std::filesystem::directory_iterator tasks("/proc/self/task", error);
  return error ? 1 : static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

void refuse_threads() {
  int threads = num_threads();
  // One that was joined is listed until the kernel has released it.
  for (int tries = 0; threads > 1 && tries < kMaxLooks; ++tries) {
    std::this_thread::sleep_for(kBetweenLooks);
    threads = num_threads();
  }
  if (threads == 1) return;
  throw Error(base::invalid_argument(
      fmt::format("spawn() copies the calling thread only, but this process has {}: call it before "
                  "libtorch computes anything, or start the program with `hanji run`",
                  threads)));
}

Status run_rank(launch::Inherited inherited, const std::function<void(World&)>& body,
                const ConnectOptions& options) {
  launch::report_crashes(inherited.endpoints, inherited.endpoints.rank);
  try {
    World world = enter(attach(std::move(inherited)), options);
    try {
      body(world);
    } catch (...) {
      const Status status = base::status_of_program(std::current_exception());
      world.fail(status);
      return status;
    }
  } catch (...) {
    return status_of(std::current_exception());
  }
  return {};
}

/// The first failing rank's own words, or how its process ended.
Status verdict(const launch::RankExit& exit) {
  if (!exit.report.ok()) return exit.report.at(fmt::format("rank {}", exit.rank));
  return base::peer_lost(
      fmt::format("rank {} (process {}) {}", exit.rank, exit.pid, launch::describe(exit)));
}

}  // namespace

void spawn(int ranks, const std::function<void(World&)>& body, const SpawnOptions& options) {
  refuse_threads();
  launch::LaunchOptions launch_options;
  launch_options.ranks = ranks;
  launch_options.plan_json = options.connect.plan_json;
  launch_options.signals = launch::Signals::kLeave;
  launch_options.segment.heap_bytes_per_rank = options.connect.heap_bytes_per_rank;
  launch_options.segment.trace_events = options.connect.trace_events;
  launch_options.cpus = topology::cpus_per_rank(topology::read_machine().or_throw(), ranks);
  const auto rank_main = [&](launch::Inherited inherited) {
    const auto& cpus = launch_options.cpus;
    const size_t threads = cpus.empty() ? 1 : cpus[inherited.endpoints.rank].size();
    at::set_num_threads(static_cast<int>(std::max<size_t>(threads, 1)));
    return run_rank(std::move(inherited), body, options.connect);
  };
  const launch::Outcome outcome = launch::fork_ranks(launch_options, rank_main).or_throw();
  if (outcome.first_failed >= 0) throw Error(verdict(outcome.ranks[outcome.first_failed]));
}

}  // namespace hanji::world
