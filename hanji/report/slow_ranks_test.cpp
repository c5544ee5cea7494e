#include "hanji/report/slow_ranks.h"

#include <gmock/gmock.h>

#include "hanji/report/test_run.h"

namespace hanji::report {
namespace {

using test_run::MadeRun;
using test_run::make;
using test_run::Own;

TEST(PlannedWork, FollowsSamplesAndLayers) {
  EXPECT_THAT(planned_work(test_run::plan_of({.ranks = 2, .batch = 33})),
              testing::ElementsAre(17 / 16.5, 16 / 16.5));
  const std::vector<double> staged =
      planned_work(test_run::plan_of({.ranks = 1, .pp = 2, .cut = {7}}));
  EXPECT_GT(staged[0], 1.2);
  EXPECT_DOUBLE_EQ(staged[0] + staged[1], 2);
}

/// At a correlation of 0.9, one line in 19 says something new.
TEST(SlowRanks, NoiseThatLastsIsNobodysFault) {
  int named = 0;
  constexpr int kSeeds = 100;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RunRecords run = make({.seed = seed, .noise = 0.02, .kept = 0.9});
    named += slow_ranks(run.plan, lines_of(run)).empty() ? 0 : 1;
  }
  // The correlation of 59 lines is known to 0.1 and taken for at most 0.95; without it most of the runs would be named.
  EXPECT_LE(named, kSeeds / 10);
}

TEST(SlowRanks, GiveTheExcessOverTheOthers) {
  const RunRecords run =
      make({.own = [](int rank, int64_t) { return Own{.compute = rank == 2 ? 0.12 : 0.1}; }});
  const std::vector<SlowRank> slow = slow_ranks(run.plan, lines_of(run));
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].index, 2U);
  // Medians of 59 steps with 1 % of noise each: 1.25 * 1.2 % / sqrt(59) is 0.2 %.
  EXPECT_NEAR(slow[0].excess, 0.2, 5 * 0.002 * 1.2);
}

TEST(SlowRanks, ATimeThatOthersTookIsNotTheRanksOwn) {
  const RunRecords run = make({.own = [](int rank, int64_t) {
    return rank == 1 ? Own{.compute = 0.15, .cpu = 0.1} : Own{};
  }});
  EXPECT_THAT(slow_ranks(run.plan, lines_of(run)), testing::IsEmpty());
}

}  // namespace
}  // namespace hanji::report
