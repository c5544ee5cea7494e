#include "hanji/report/run_facts.h"

#include <gmock/gmock.h>

#include "hanji/report/test_run.h"

namespace hanji::report {
namespace {

using test_run::make;

RunRecords on_gpu(const std::string& device) {
  RunRecords run = make({.ranks = 2});
  run.plan.times.gpu = topology::GpuRates{.device = device};
  return run;
}

std::string device_of(const std::string& device) {
  const RunRecords run = on_gpu(device);
  return rate_of(run, judge_run(run)).value().device;
}

TEST(RunFacts, APeakIsThatOfTheTablesDeviceAlone) {
  EXPECT_EQ(device_of("NVIDIA H200"), "h200-141");
  EXPECT_EQ(device_of("NVIDIA GH200 480GB"), "gh200-96") << "which is no H200";
  EXPECT_EQ(device_of("NVIDIA B300 SXM6"), "b300-288");
  EXPECT_EQ(device_of("NVIDIA GeForce RTX 5070"), "");
  const RunRecords run = make({.ranks = 2});
  EXPECT_FALSE(rate_of(run, judge_run(run)).value().of_peak.has_value()) << "a processor has none";
}

TEST(RunFacts, TheRateIsThatOfTheProductsOfAllRanks) {
  const RunRecords run = on_gpu("NVIDIA H200");
  const RunRate rate = rate_of(run, judge_run(run)).value();
  EXPECT_NEAR(*rate.of_peak, rate.flops_per_second / (2 * 794.5e12), 1e-12);
  const double kernels = run.plan.kernels.gemm_flops_per_second;
  EXPECT_NEAR(*rate.of_measured, rate.flops_per_second / (2 * kernels), 1e-9);
}

TEST(RunFacts, AnAxisOverHostsHasTheirLinkAndOthersTheMemory) {
  RunRecords run = make({.ranks = 2});
  const AxisFacts within = axes_of(run).at(0);
  EXPECT_FALSE(within.is_network);
  EXPECT_EQ(within.link_bytes_per_second, run.plan.rates.memory_bytes_per_second);
  EXPECT_NEAR(*within.bytes_per_second, within.bytes / *within.exposed_transfer, 1e-3);
  run.plan.hosts = {.ranks = {1, 1}, .link = {.bytes_per_second = 1e9}};
  const AxisFacts between = axes_of(run).at(0);
  EXPECT_TRUE(between.is_network);
  EXPECT_EQ(between.link_bytes_per_second, 1e9);
}

TEST(RunFacts, BytesThatTookNoTimeHaveNoRate) {
  RunRecords run = make({.ranks = 2});
  for (RankSteps& rank : run.ranks) {
    for (StepAccount& one : rank.accounts) one.axes[0].exposed_transfer = 0.0;
  }
  EXPECT_FALSE(axes_of(run).at(0).bytes_per_second.has_value());
}

TEST(RunFacts, ComputingIsForwardBackwardOptimizerAndTheRest) {
  RunRecords run = make({.ranks = 1, .steps = 5, .noise = 0});
  for (StepAccount& one : run.ranks[0].accounts) {
    one.forward = 0.03;
    one.backward = 0.05;
    one.optimizer = 0.005;
  }
  const ComputeParts parts = compute_parts_of(run).at(0);
  EXPECT_NEAR(parts.forward, 0.03, 1e-12);
  EXPECT_NEAR(parts.other, 0.1 - 0.085, 1e-12);
  for (StepAccount& one : run.ranks[0].accounts) one.skew = std::nullopt;
  EXPECT_TRUE(compute_parts_of(run).empty()) << "what is computing is not told";
}

TEST(RunFacts, WaitsSayWhoWaitsForWhomTheLongestFirst) {
  const auto own = [](int rank, int64_t) {
    return test_run::Own{.compute = rank == 2 ? 0.2 : rank == 1 ? 0.15 : 0.1};
  };
  const auto waits = longest_waits(make({.ranks = 3, .noise = 0, .own = own}), 9);
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].rank, 0);
  EXPECT_EQ(waits[0].awaited, 2);
  EXPECT_EQ(waits[0].routine, "all_reduce");
  EXPECT_NEAR(waits[0].seconds, 0.1, 1e-9);
  EXPECT_NEAR(waits[1].seconds, 0.05, 1e-9);
  EXPECT_EQ(longest_waits(make({.ranks = 3, .noise = 0, .own = own}), 1).size(), 1u);
}

TEST(RunFacts, OfNoSummaryNothingIsKnown) {
  const OutcomeFacts outcome = outcome_of(make({}));
  EXPECT_FALSE(outcome.has_ended);
  EXPECT_FALSE(outcome.train_loss.has_value());
  EXPECT_FALSE(outcome.saving.has_value());
  EXPECT_TRUE(outcome.comparisons.empty());
}

}  // namespace
}  // namespace hanji::report
