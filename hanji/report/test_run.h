#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "hanji/plan/test_plan.h"
#include "hanji/report/run_records.h"

namespace hanji::report::test_run {

/// Seconds of one rank in a step before others are waited for.
struct Own {
  double compute = 0.1;
  double data = 1e-4;
  double transfer = 2e-4;  ///< Exposed.
  double cpu = -1;         ///< -1: all of the computing and waiting.
};

struct MadeRun {
  int ranks = 4;
  int64_t steps = 60;
  uint64_t seed = 1;
  double noise =
      0.01;  ///< Noise of the computing, of each rank and step; as much again common to all ranks of a step.
  std::function<Own(int rank, int64_t step)> own = [](int, int64_t) { return Own{}; };
};

inline plan::Plan plan_of(int ranks) {
  plan::PlanInputs inputs = plan::test_plan::two_cores();
  inputs.machine.physical_cores = inputs.machine.usable_cores = ranks;
  inputs.machine.core_cpus.clear();
  for (int core = 0; core < ranks; ++core) inputs.machine.core_cpus.push_back({core});
  inputs.config.run.ranks = ranks;
  inputs.config.train.global_batch = 16 * ranks;
  return plan::test_plan::made(inputs);
}

/// The records of a run whose ranks meet once a step: who is early waits for the last one.
inline RunRecords make(const MadeRun& made) {
  RunRecords run{.folder = "/runs/made", .plan = plan_of(made.ranks)};
  std::mt19937_64 random(made.seed);
  std::normal_distribution<double> normal(0, made.noise);
  for (int rank = 0; rank < made.ranks; ++rank) run.ranks.push_back({.rank = rank});
  for (int64_t step = 1; step <= made.steps; ++step) {
    const double common = std::max(0.1, 1 + normal(random));
    std::vector<Own> all;
    double last = 0;
    int last_rank = 0;
    for (int rank = 0; rank < made.ranks; ++rank) {
      Own own = made.own(rank, step);
      own.compute *= common * std::max(0.1, 1 + normal(random));
      if (own.compute + own.data > last) {
        last = own.compute + own.data;
        last_rank = rank;
      }
      all.push_back(own);
    }
    for (int rank = 0; rank < made.ranks; ++rank) {
      const Own& own = all[rank];
      StepAccount account{.step = step};
      account.data = own.data;
      account.exposed_transfer = account.transfer = own.transfer;
      account.skew = last - own.compute - own.data;
      account.seconds = last + own.transfer;
      account.cpu = own.cpu >= 0 ? own.cpu : account.seconds - own.data;
      account.backward = own.compute;
      account.axes = {{"data", 2, 1 << 20, own.transfer, *account.skew}};
      account.calls = {{"all_reduce", 2, 1 << 20, own.transfer + *account.skew}};
      if (*account.skew > 0) account.waits = {{"all_reduce", last_rank, *account.skew}};
      run.ranks[rank].accounts.push_back(account);
    }
  }
  return run;
}

}  // namespace hanji::report::test_run
