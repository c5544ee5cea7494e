#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/test_plan.h"
#include "hanji/report/run_records.h"

namespace hanji::report::test_run {

/// What a rank does in a step without waiting for others.
struct Own {
  double compute = 0.1;  ///< Seconds of a rank with the mean work.
  double data = 1e-4;
  double transfer = 2e-4;  ///< Exposed.
  double cpu = -1;         ///< -1: all of the computing and waiting.
};

struct MadeRun {
  int ranks = 4;  ///< Data coordinates.
  int64_t steps = 60;
  uint64_t seed = 1;
  double noise =
      0.01;  ///< Deviation of the computing, of each rank and step; as much again common to all ranks.
  std::function<Own(int rank, int64_t step)> own = [](int, int64_t) { return Own{}; };
  int tp = 1, pp = 1;
  std::vector<double> cut = {};  ///< First layers of stages; empty: as a plan cuts them.
  int64_t batch = 0;             ///< Samples of a step; 0: 16 of each data coordinate.
  double kept = 0;               ///< The share of the noise of a step that the next one has, too.
  double plan_error = 0;         ///< Deviation of a stage's work from the planned.
  std::function<void(plan::PlanInputs&)> change = [](plan::PlanInputs&) {};
};

inline plan::Plan plan_of(const MadeRun& made) {
  plan::PlanInputs inputs = plan::test_plan::two_cores();
  const int ranks = made.ranks * made.tp * made.pp;
  const int on_host = std::min(ranks, 8);
  for (int rank = 0; ranks > on_host && rank < ranks; rank += on_host) {
    inputs.ranks_per_host.push_back(std::min(on_host, ranks - rank));
  }
  inputs.machine.physical_cores = inputs.machine.usable_cores = on_host;
  inputs.machine.memory_bytes = inputs.machine.available_bytes = int64_t{1} << 40;
  inputs.machine.core_cpus.clear();
  for (int core = 0; core < on_host; ++core) inputs.machine.core_cpus.push_back({core});
  if (made.tp * made.pp > 1) {
    inputs.config.model.layers = std::max(8, 2 * made.pp);
    inputs.config.model.heads = std::max(4, made.tp);
    inputs.config.model.width = 32 * inputs.config.model.heads;
  }
  if (made.tp * made.pp > 1) {
    // As they would be counted in a model that is built.
    plan::PlanInputs whole = inputs;
    whole.config.run.ranks = 1;
    whole.ranks_per_host.clear();
    inputs.model = plan::test_plan::made(whole).model;
    for (plan::LayerFacts& layer : inputs.model->layers)
      layer.flow = {.fixed = 128, .per_sample = 4096};
    inputs.model->layers.back().tied = {0};
  }
  inputs.config.run.ranks = ranks;
  inputs.config.mesh.tp = made.tp;
  inputs.config.mesh.pp = made.pp;
  inputs.config.pipeline.cut = made.cut;
  inputs.config.train.global_batch = made.batch > 0 ? made.batch : 16 * made.ranks;
  made.change(inputs);
  return plan::test_plan::made(inputs);
}

/// Ranks that share a clock: each computes, and who is early where they meet waits for the last one.
class MadeSteps {
 public:
  MadeSteps(const MadeRun& made, plan::Plan plan)
      : made_(made), plan_(std::move(plan)), random_(made.seed), noise_(plan_.ranks + 1, 0) {
    if (made.pp == 1) return;
    const auto times = plan::stage_times(plan_.model, plan_.times, plan::stages_of(plan_), 1);
    rank_of_stage_ = plan::ranks_of_stages(plan_);
    double sum = 0;
    for (size_t s = 0; s < times.size(); ++s) {
      stage_work_.push_back(times[s].whole() * (1 + made.plan_error * normal_(random_)));
      sum += stage_work_.back();
    }
    for (double& one : stage_work_) one *= made.pp / sum;
  }

  RunRecords run() {
    RunRecords run{.folder = "/runs/made", .plan = plan_};
    for (int rank = 0; rank < plan_.ranks; ++rank) run.ranks.push_back({.rank = rank});
    for (int64_t step = 1; step <= made_.steps; ++step) {
      begin(step);
      if (made_.pp > 1) {
        for (const auto& ranks : groups({"pp"})) act(ranks);
      } else {
        compute_in_layers();
      }
      for (const auto& ranks : groups({"dp", "fsdp"})) meet(ranks, "all_reduce");
      std::vector<int> all;
      for (int rank = 0; rank < plan_.ranks; ++rank) all.push_back(rank);
      meet(all, "all_reduce");
      for (int rank = 0; rank < plan_.ranks; ++rank) {
        run.ranks[rank].accounts.push_back(account_of(rank, step));
      }
    }
    return run;
  }

 private:
  struct Clock {
    Own own;
    double factor = 1;  ///< Noise of this step.
    double now = 0, computed = 0, skew = 0;
    std::map<std::pair<std::string, int>, double> waits;
  };

  void begin(int64_t step) {
    for (double& one : noise_) {
      one = made_.kept * one +
            std::sqrt(1 - made_.kept * made_.kept) * made_.noise * normal_(random_);
    }
    clocks_.assign(plan_.ranks, {});
    const double mean = static_cast<double>(plan_.config.train.global_batch) / made_.ranks;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      Clock& clock = clocks_[rank];
      clock.own = made_.own(rank, step);
      clock.factor = std::max(0.1, (1 + noise_[rank]) * (1 + noise_.back()));
      const auto samples = static_cast<double>(plan::share_of(plan_, rank).samples.size());
      clock.own.compute *= samples / mean;
      clock.now = clock.own.data;
    }
  }

  void compute(int rank, double part) {
    Clock& clock = clocks_[rank];
    const double seconds = clock.own.compute * part * clock.factor;
    clock.now += seconds;
    clock.computed += seconds;
  }

  void compute_in_layers() {
    const int layers = made_.tp > 1 ? 8 : 1;
    for (int layer = 0; layer < layers; ++layer) {
      for (int rank = 0; rank < plan_.ranks; ++rank) {
        compute(rank, (1 + (layers > 1 ? made_.noise * normal_(random_) : 0)) / layers);
      }
      if (made_.tp > 1) {
        for (const auto& ranks : groups({"tp"})) meet(ranks, "all_gather");
      }
    }
  }

  /// Ranks of each group that differ in these axes alone.
  const std::vector<std::vector<int>>& groups(const std::vector<std::string>& axes) {
    auto& known = groups_[axes];
    if (!known.empty()) return known;
    std::map<std::vector<int>, std::vector<int>> by_place;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      std::vector<int> place;
      for (const layout::Axis& axis : plan_.mesh.axes()) {
        if (std::ranges::find(axes, axis.name) == axes.end()) {
          place.push_back(plan_.mesh.coordinate(rank, axis.name));
        }
      }
      by_place[place].push_back(rank);
    }
    for (auto& [place, ranks] : by_place) known.push_back(ranks);
    return known;
  }

  void wait(int rank, double until, const std::string& routine, int whom) {
    Clock& clock = clocks_[rank];
    if (until <= clock.now) return;
    clock.waits[{routine, whom}] += until - clock.now;
    clock.skew += until - clock.now;
    clock.now = until;
  }

  void meet(const std::vector<int>& ranks, const std::string& routine) {
    const int last = *std::ranges::max_element(ranks, {}, [&](int r) { return clocks_[r].now; });
    for (const int rank : ranks) wait(rank, clocks_[last].now, routine, last);
  }

  /// The ranks of one pipeline, in the order of its schedule.
  void act(const std::vector<int>& ranks) {
    const int64_t batches = plan::share_of(plan_, ranks[0]).num_micro_batches;
    if (!schedules_.contains(batches)) {
      schedules_[batches] = plan::schedule_of(plan_.config, batches).or_throw();
    }
    const schedule::PipelineSchedule& schedule = schedules_.at(batches);
    std::vector<size_t> next(ranks.size(), 0);
    for (std::vector<double>& one : ready_) one.assign(schedule.num_stages() * batches, -1);
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t place = 0; place < ranks.size(); ++place) {
        const auto& list = schedule.ranks[place];
        while (next[place] < list.size() && act(ranks, list[next[place]], batches)) {
          ++next[place];
          moves = true;
        }
      }
    }
  }

  /// False: what it takes is not there yet.
  bool act(const std::vector<int>& ranks, const schedule::Action& action, int64_t batches) {
    if (!schedule::is_compute(action.kind)) return true;
    const int rank = ranks[rank_of_stage_[action.stage]];
    const bool is_forward = action.kind == schedule::ActionKind::kForward;
    std::vector<double>& ready = ready_[is_forward ? 0 : 1];
    const int from = is_forward ? action.stage - 1 : action.stage + 1;
    if (from >= 0 && from < std::ssize(stage_work_)) {
      const double there = ready[from * batches + action.micro_batch];
      if (there < 0) return false;
      wait(rank, there, "receive", ranks[rank_of_stage_[from]]);
    }
    const double part = action.kind == schedule::ActionKind::kBackward ? 2.0 / 3 : 1.0 / 3;
    compute(rank, part * stage_work_[action.stage] / static_cast<double>(batches) *
                      (1 + made_.noise * normal_(random_)));
    if (action.kind != schedule::ActionKind::kBackwardWeight) {
      ready[action.stage * batches + action.micro_batch] = clocks_[rank].now;
    }
    return true;
  }

  StepAccount account_of(int rank, int64_t step) const {
    const Clock& clock = clocks_[rank];
    const Own& own = clock.own;
    StepAccount account{.step = step};
    account.data = own.data;
    account.exposed_transfer = account.transfer = own.transfer;
    account.skew = clock.skew;
    account.seconds = clock.now + own.transfer;
    account.cpu = own.cpu >= 0 ? own.cpu : account.seconds - own.data;
    account.forward = clock.computed / 3;
    account.backward = clock.computed - account.forward;
    account.axes = {{"data", 2, 1 << 20, own.transfer, clock.skew}};
    account.calls = {{"all_reduce", 2, 1 << 20, own.transfer + clock.skew}};
    for (const auto& [of, seconds] : clock.waits) {
      account.waits.push_back({of.first, of.second, seconds});
    }
    std::ranges::stable_sort(account.waits, std::greater(), &WaitAccount::seconds);
    if (account.waits.size() > kMaxWaits) account.waits.resize(kMaxWaits);
    return account;
  }

  MadeRun made_;
  plan::Plan plan_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::vector<double> noise_;  ///< Noise of each rank, and what all have in common.
  std::vector<Clock> clocks_;
  std::vector<int> rank_of_stage_;
  std::vector<double> stage_work_;  ///< In means of a rank.
  std::map<std::vector<std::string>, std::vector<std::vector<int>>> groups_;
  std::array<std::vector<double>, 2> ready_;  ///< When stages made what; forward, backward.
  std::map<int64_t, schedule::PipelineSchedule> schedules_;  ///< By the number of micro-batches.
};

/// The records of a run whose ranks meet as the plan has them.
inline RunRecords make(const MadeRun& made) { return MadeSteps(made, plan_of(made)).run(); }

}  // namespace hanji::report::test_run
