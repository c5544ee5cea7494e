#include "hanji/comm/fit_costs.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>

#include "hanji/base/clock.h"
#include "hanji/comm/time_calls.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/broadcast.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::comm {
namespace {

using testing::HasSubstr;

cost::TimedCall call_of(schedule::StepList list) {
  return {std::make_shared<const schedule::StepList>(std::move(list)), DType::kFloat32};
}

// Others only ever lengthen a call, so the shortest of all timings are compared, until the relation
// holds: 4096 times the bytes, of which the caches hold a part, take at least 10 times as long.
TEST(TimeCalls, MoreBytesTakeLonger) {
  std::vector<cost::TimedCall> calls = {call_of(schedule::all_reduce_direct(2, 1 << 10)),
                                        call_of(schedule::all_reduce_direct(2, 1 << 22)),
                                        call_of(schedule::broadcast_staged(2, 1 << 20, 0, 1 << 17)),
                                        call_of(schedule::barrier(2))};
  std::vector<double> shortest(calls.size(), 1e9);
  const auto holds = [&] { return shortest[1] > 10 * shortest[0] && shortest[2] > shortest[3]; };
  const auto deadline = base::Deadline::after(std::chrono::seconds(20));
  for (int timing = 0; timing < 5 || (!holds() && !deadline.passed()); ++timing) {
    const Status status = time_calls(calls, {.ranks = 2, .budget_seconds = 0.05});
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_GT(calls[i].seconds, 0);
      shortest[i] = std::min(shortest[i], calls[i].seconds);
    }
  }
  EXPECT_GT(shortest[1], 10 * shortest[0]);  // 16 MiB summed, 4 KiB summed
  EXPECT_GT(shortest[2], shortest[3]);       // 4 MiB sent, nothing sent
}

TEST(TimeCalls, RefusesListsOfOtherRanks) {
  std::vector<cost::TimedCall> calls = {call_of(schedule::barrier(3))};
  EXPECT_THAT(time_calls(calls, {.ranks = 2}).message(), HasSubstr("3 ranks"));
}

TEST(FitCostsHere, GivesCostsWithTheStampOfThisMachine) {
  const topology::Machine machine = topology::read_machine().or_throw();
  const auto fit =
      fit_costs_here(machine, {.ranks = 2, .budget_seconds = 0, .most_bytes = 1 << 20});
  ASSERT_TRUE(fit.ok()) << fit.status().message();
  EXPECT_EQ(fit->stored.stamp, cost::stamp_of(machine, 2));
  EXPECT_EQ(fit->stored.costs.ranks, 2);
  EXPECT_GT(fit->stored.costs.call_seconds + fit->stored.costs.sync_seconds, 0);
  EXPECT_FALSE(fit->stored.costs.corrections.empty());
  EXPECT_EQ(fit_costs_here(machine, {.ranks = 1}).status().code(), Code::kInvalidArgument);
}

constexpr FitOptions kLittle{.ranks = 2, .budget_seconds = 0, .most_bytes = 1 << 20};

TEST(UseOrFit, FitsOnceAndSaysWhereCostsComeFrom) {
  const test::TemporaryFolder folder;
  const topology::Machine machine = topology::read_machine().or_throw();
  cost::Rates first, second, alone;
  EXPECT_THAT(use_or_fit(first, folder.path(), machine, kLittle).or_throw(),
              testing::AllOf(HasSubstr("just now"), HasSubstr("no costs were fitted for 2 ranks"),
                             HasSubstr("hanji bench --fit --ranks 2")));
  ASSERT_TRUE(first.fitted.has_value());
  EXPECT_EQ(first.fitted->ranks, 2);
  cost::StoredCosts quiet = cost::load_costs(folder.path(), 2).or_throw();
  quiet.load = 0;
  ASSERT_TRUE(cost::save_costs(folder.path(), quiet).ok());
  EXPECT_THAT(use_or_fit(second, folder.path(), machine, kLittle).or_throw(),
              testing::AllOf(HasSubstr("costs timed on 2"), HasSubstr("is closer")));
  EXPECT_EQ(first, second);
  EXPECT_THAT(use_or_fit(alone, folder.path(), machine, {.ranks = 1}).or_throw(),
              HasSubstr("one rank"));
  EXPECT_FALSE(alone.fitted.has_value());
}

TEST(UseOrFit, CostsThatWereFittedUnderLoadAreFittedAgainOnceAndTheLesserLoadIsKept) {
  const test::TemporaryFolder folder;
  const topology::Machine machine = topology::read_machine().or_throw();
  cost::Rates rates;
  cost::StoredCosts loaded = fit_costs_here(machine, kLittle).or_throw().stored;
  const int64_t fitted_at = --loaded.fitted_at;
  for (const auto& [load, again] : {std::pair(2.0, true), std::pair(0.11, false)}) {
    loaded.load = load;  // of 2 every fit is less
    loaded.fits = again ? 1 : cost::kMaxFits;
    ASSERT_TRUE(cost::save_costs(folder.path(), loaded).ok());
    EXPECT_THAT(use_or_fit(rates, folder.path(), machine, kLittle).or_throw(),
                HasSubstr("costs timed"));
    const cost::StoredCosts kept = cost::load_costs(folder.path(), 2).or_throw();
    EXPECT_EQ(kept.fitted_at > fitted_at, again);
    EXPECT_EQ(kept.fits, cost::kMaxFits);
    EXPECT_EQ(*rates.fitted, kept.costs);
  }
}

TEST(Disagreement, SeesCostsOfAnotherMachine) {
  const topology::Machine machine = topology::read_machine().or_throw();
  cost::FittedCosts slow;
  slow.ranks = 2;
  slow.processors = 2;
  slow.call_seconds = 1;
  EXPECT_GT(disagreement(machine, slow).or_throw(), cost::kMaxDisagreement);
}

}  // namespace
}  // namespace hanji::comm
