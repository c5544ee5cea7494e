#include "hanji/topology/wait_policy.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <string>

namespace hanji::topology {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Case {
  const char* name;
  WaitFacts facts;
  WaitPolicy policy;
  const char* why;
};

TEST(WaitPolicy, FollowsTheUserThenTheThreadsThenWhatOthersUse) {
  const Case cases[] = {
      {"the user's own wins, however full the CPUs are",
       {.ranks = 2, .threads = 4, .cpus = 2, .cpus_of_others = 2, .setting = "GOMP_SPINCOUNT=7"},
       WaitPolicy::kGiven,
       "GOMP_SPINCOUNT=7 is set"},
      {"one thread waits for none",
       {.ranks = 8, .threads = 1, .cpus = 2, .cpus_of_others = 2},
       WaitPolicy::kRuntime,
       "a rank has one thread"},
      {"ranks that are there have read their environment",
       {.ranks = 2, .threads = 2, .cpus = 2, .are_started = true},
       WaitPolicy::kGiven,
       "their launcher has started them without OMP_WAIT_POLICY"},
      {"a CPU for each thread",
       {.ranks = 2, .threads = 2, .cpus = 4},
       WaitPolicy::kRuntime,
       "each thread has a CPU to itself"},
      {"one thread too many",
       {.ranks = 1, .threads = 5, .cpus = 4},
       WaitPolicy::kSleep,
       "5 threads of the ranks share 4 CPUs"},
      {"ranks whose threads are too many together",
       {.ranks = 2, .threads = 2, .cpus = 2},
       WaitPolicy::kSleep,
       "4 threads of the ranks share 2 CPUs"},
      {"a quota below the threads",
       {.ranks = 1, .threads = 2, .cpus = 1.5},
       WaitPolicy::kSleep,
       "2 threads of the ranks share 1.5 CPUs"},
      {"others beside as many threads as CPUs",
       {.ranks = 1, .threads = 2, .cpus = 2, .cpus_of_others = 1.92},
       WaitPolicy::kSleep,
       "other processes use 1.9 of the 2 CPUs"},
      {"others on one CPU of many",
       {.ranks = 1, .threads = 64, .cpus = 64, .cpus_of_others = 1},
       WaitPolicy::kSleep,
       "other processes use 1 of the 64 CPUs"},
      {"others on CPUs that are left over",
       {.ranks = 2, .threads = 2, .cpus = 8, .cpus_of_others = 4},
       WaitPolicy::kRuntime,
       "each thread has a CPU to itself"},
      {"a little of one CPU",
       {.ranks = 1, .threads = 2, .cpus = 2, .cpus_of_others = 0.4},
       WaitPolicy::kRuntime,
       "each thread has a CPU to itself"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(choose_wait_policy(one.facts), (WaitChoice{one.policy, one.why})) << one.name;
  }
}

TEST(WaitPolicy, ChangesTheEnvironmentOnlyToSleep) {
  EXPECT_THAT(wait_variables({WaitPolicy::kSleep, "full"}),
              ElementsAre("OMP_WAIT_POLICY=passive", "KMP_BLOCKTIME=0"));
  EXPECT_THAT(wait_variables({WaitPolicy::kRuntime, ""}), IsEmpty());
  EXPECT_THAT(wait_variables({WaitPolicy::kGiven, ""}), IsEmpty());
}

TEST(WaitPolicy, HasOneNameAndOneSentenceEach) {
  for (const auto policy : {WaitPolicy::kRuntime, WaitPolicy::kSleep, WaitPolicy::kGiven}) {
    EXPECT_EQ(wait_policy_of(name_of(policy)), policy);
  }
  EXPECT_EQ(wait_policy_of("active"), std::nullopt);
  EXPECT_EQ(describe({WaitPolicy::kSleep, "why"}), "sleep while they wait: why");
  EXPECT_EQ(describe({WaitPolicy::kGiven, "why"}), "wait as they are told: why");
  EXPECT_EQ(describe({WaitPolicy::kRuntime, "why"}),
            "spin before they sleep, as OpenMP does by itself: why");
}

TEST(WaitSetting, IsTheFirstVariableThatTheUserHasSet) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) ::unsetenv(name);
  EXPECT_EQ(wait_setting(), "");
  ::setenv("KMP_BLOCKTIME", "1", 1);
  EXPECT_EQ(wait_setting(), "KMP_BLOCKTIME=1");
  ::setenv("GOMP_SPINCOUNT", "100", 1);
  EXPECT_EQ(wait_setting(), "GOMP_SPINCOUNT=100");
  ::setenv("OMP_WAIT_POLICY", "active", 1);
  EXPECT_EQ(wait_setting(), "OMP_WAIT_POLICY=active");
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) ::unsetenv(name);
}

TEST(CpusOf, AMachineAreThoseOfItsMaskUpToTheQuota) {
  Machine machine;
  machine.usable_cores = 2;
  EXPECT_EQ(cpus_of(machine), 2) << "where no core is listed";
  machine.core_cpus = {{0, 4}, {1, 5}};
  EXPECT_EQ(cpus_of(machine), 4);
  machine.cpu_quota = 1.5;
  EXPECT_EQ(cpus_of(machine), 1.5);
  machine.cpu_quota = 16;
  EXPECT_EQ(cpus_of(machine), 4);
}

TEST(LookAtOthers, CountsAtMostTheCpusOfTheMachine) {
  const Machine machine = read_machine().or_throw();
  const double others = look_at_others(machine);
  EXPECT_GE(others, 0);
  EXPECT_LE(others, static_cast<double>(machine.core_cpus.size()) * 8);
  EXPECT_EQ(look_at_others({}), 0) << "no CPU is named";
}

}  // namespace
}  // namespace hanji::topology
