// The protocol of the flag lines, the engine's own code, in every order of its steps; and that each
// way of getting it wrong is found.
#include "hanji/test/model/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

namespace hanji::test::model {
namespace {

using testing::HasSubstr;

TEST(Protocol, IsRightInEveryOrder) {
  int64_t states = 0;
  int64_t transitions = 0;
  for (const Scenario& scenario : small_scenarios()) {
    const Outcome outcome = explore(scenario);
    EXPECT_TRUE(outcome.complete) << describe(scenario) << ": " << outcome.violation;
    EXPECT_GT(outcome.num_ends, 0) << describe(scenario);
    EXPECT_GT(outcome.num_states, 20) << describe(scenario);
    states += outcome.num_states;
    transitions += outcome.num_transitions;
  }
  std::cout << small_scenarios().size() << " scenarios, " << states << " states, " << transitions
            << " transitions\n";
}

struct Wrong {
  const char* name;
  Seed seed;
  Scenario scenario;
  const char* says;
};

class Seeded : public testing::TestWithParam<Wrong> {};

TEST_P(Seeded, IsFound) {
  Scenario scenario = GetParam().scenario;
  EXPECT_EQ(explore(scenario).violation, "") << "right without the seed";
  scenario.seed = GetParam().seed;
  EXPECT_THAT(explore(scenario).violation, HasSubstr(GetParam().says));
}

constexpr Scenario kInLine{.routine = Routine::kAllReduceInLine, .calls = 3};
constexpr Scenario kFlat{.routine = Routine::kAllReduceFlat, .calls = 3};
constexpr Scenario kAhead{.routine = Routine::kSendDirect, .calls = 2, .ahead = true};
constexpr Scenario kAsleep{.calls = 2, .waits = Waits::kSleep};

INSTANTIATE_TEST_SUITE_P(
    Bug, Seeded,
    testing::Values(Wrong{"OneLineInsteadOfTwo", Seed::kOneLine, kInLine, "the words of line"},
                    Wrong{"AheadOfItsLines", Seed::kFewLines, kAhead, "line"},
                    Wrong{"SlotsReusedOneSyncEarly", Seed::kOneStagingSet, kFlat, "staging 0 of"},
                    Wrong{"NoFence", Seed::kNoFence, kAsleep, "nobody can go on"},
                    Wrong{"PostNotReleased", Seed::kPostNotReleased, kInLine, "words of line"},
                    Wrong{"ReadNotAcquired", Seed::kReadNotAcquired, kInLine, "words of line"},
                    Wrong{"SleepWithoutComparing", Seed::kSleepUnchecked, kAsleep,
                          "nobody can go on"},
                    Wrong{"CountedLate", Seed::kCountedLate, kAsleep, "nobody can go on"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hanji::test::model
