#include "hanji/train/joined_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "hanji/base/env.h"
#include "hanji/base/exception.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/comm/regroup.h"
#include "hanji/comm/share_text.h"
#include "hanji/launch/environment.h"
#include "hanji/topology/machine.h"
#include "hanji/train/measure_link.h"
#include "hanji/train/meet.h"
#include "hanji/train/stop_signal.h"
#include "hanji/world/connect.h"

namespace hanji::train {
namespace {

std::string to_json(const Decision& decision) {
  base::Json json = {{"exit_code", decision.exit_code}};
  if (decision.job) {
    json["plan"] = plan::to_json(decision.job->plan);
    json["out"] = decision.job->out.string();
    json["resume_from"] = decision.job->resume_from.string();
  }
  return base::dump(json);
}

Result<Decision> decision_from_json(const std::string& text) {
  HANJI_ASSIGN_OR_RETURN(const base::Json json, base::parse_json(text));
  Decision decision{.exit_code = json.value("exit_code", 0), .job = std::nullopt};
  if (!json.contains("plan")) return decision;
  JoinedJob& job = decision.job.emplace();
  HANJI_ASSIGN_OR_RETURN(job.plan, plan::plan_from_json(json["plan"].get<std::string>()));
  job.out = json["out"].get<std::string>();
  job.resume_from = json["resume_from"].get<std::string>();
  return decision;
}

/// For people. The engine is the plan's: what the ranks met by says nothing of it.
std::string describe_hosts(const world::World& world) {
  return fmt::format("{} on {}, started by their launcher", base::counted(world.size(), "rank"),
                     base::counted(world.num_nodes(), "host"));
}

/// Collective: of several hosts the link is measured.
MetRanks describe(const world::World& world) {
  MetRanks met{describe_hosts(world), {}, {}};
  if (world.num_nodes() == 1) return met;
  met.ranks_per_host = world.ranks_per_node();
  met.link = measure_link(world.group(), world.num_nodes());
  return met;
}

std::optional<int> threads_of_openmp() {
  const std::string text = base::read(base::Variable::kOmpNumThreads).value_or("");
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc() || end != text.data() + text.size() || threads < 1) return {};
  return threads;
}

Result<int> threads_of_each(int local_ranks) {
  HANJI_ASSIGN_OR_RETURN(const topology::Machine machine, topology::read_machine());
  return threads_of_openmp().value_or(std::max(1, machine.usable_cores / local_ranks));
}

}  // namespace

Result<std::optional<StartedRanks>> find_started_ranks() {
  HANJI_ASSIGN_OR_RETURN(const launch::Identity identity, launch::detect());
  if (identity.world_size == 1) return std::optional<StartedRanks>();
  HANJI_ASSIGN_OR_RETURN(const int threads, threads_of_each(identity.local_size));
  return std::optional(StartedRanks{.rank = identity.rank,
                                    .ranks = identity.world_size,
                                    .local_ranks = identity.local_size,
                                    .threads = threads});
}

Result<StartedRanks> started_ranks(const world::World& world) {
  const int local_ranks = world.ranks_per_node().front();
  HANJI_ASSIGN_OR_RETURN(const int threads, threads_of_each(local_ranks));
  return StartedRanks{.ranks = world.size(), .local_ranks = local_ranks, .threads = threads};
}

namespace {

JoinedOutcome run_met(world::World& world, StopSignal& stop,
                      const std::function<Decision(const MetRanks& met)>& decide,
                      RankOptions options, const RunPlan& run) {
  try {
    Decision decision;
    const MetRanks met = describe(world);
    if (world.rank() == 0) decision = decide(met);
    const auto lock = decision.job ? decision.job->lock : nullptr;
    if (decision.job) {
      base::throw_if_error(base::write_file_atomic(decision.job->out / "plan.json",
                                                   plan::to_json(decision.job->plan)));
    }
    decision =
        decision_from_json(comm::share_text(to_json(decision), world.group(), "job")).or_throw();
    if (!decision.job) return {.exit_code = decision.exit_code, .rank = {}};
    options.out = decision.job->out;
    options.resume_from = decision.job->resume_from;
    const plan::Plan& plan = decision.job->plan;
    const comm::Group followed =
        comm::regroup(world.group(), follow_plan(plan, world.group().options()));
    const comm::Group group =
        training_group(world, followed, plan, take_device(world, plan), options.out / "logs");
    if (world.rank() == 0 && group.engine() != followed.engine()) {
      options.output.write(fmt::format("trains over {}\n", group.engine()));
    }
    return {.exit_code = 0, .rank = run(options, world, group, plan, stop)};
  } catch (...) {
    if (options.own == nullptr) fail_verb(world);
    world.fail(base::status_of_program(std::current_exception()));
    throw;
  }
}

}  // namespace

JoinedOutcome run_joined(const std::function<Decision(const MetRanks& met)>& decide,
                         RankOptions options) {
  StopSignal stop = StopSignal::create().or_throw();
  world::World world = world::connect();
  return run_met(world, stop, decide, std::move(options), run_plan);
}

JoinedOutcome run_joined(world::World& world,
                         const std::function<Decision(const MetRanks& met)>& decide,
                         RankOptions options, const RunPlan& run) {
  StopSignal stop = StopSignal::create().or_throw();
  return run_met(world, stop, decide, std::move(options), run);
}

}  // namespace hanji::train
