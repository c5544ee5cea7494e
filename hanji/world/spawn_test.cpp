#include "hanji/world/spawn.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "hanji/base/file.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::world {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// What spawn() throws, as "code: message"; "ok" if it does not.
std::string outcome_of(int ranks, const std::function<void(World&)>& body) {
  try {
    spawn(ranks, body);
  } catch (const Error& error) {
    return std::string(base::name_of(error.code())) + ": " + error.what();
  }
  return "ok";
}

void sum_ranks(World& world) {
  at::Tensor sum = at::full({5}, world.rank(), at::kLong);
  comm::all_reduce(sum, world.group()).wait();
  if (sum[0].item<int64_t>() != world.size() * (world.size() - 1) / 2) {
    throw Error(base::internal("wrong sum"));
  }
}

TEST(Spawn, RanksComputeTogether) {
  for (const int ranks : {1, 2, 5}) EXPECT_EQ(outcome_of(ranks, sum_ranks), "ok");
}

TEST(Spawn, AnErrorKeepsItsCodeAndNamesItsRank) {
  const auto outcome = outcome_of(3, [](World& world) {
    if (world.rank() == 1) throw Error(base::corrupt("page 7"));
    sum_ranks(world);
  });
  EXPECT_EQ(outcome, "corrupt: rank 1: page 7");
}

TEST(Spawn, OtherExceptionsAreTheProgramsOwnByTypeAndWords) {
  EXPECT_EQ(outcome_of(1, [](World&) { throw std::runtime_error("words"); }),
            "invalid_argument: rank 0: std::runtime_error: words");
  EXPECT_EQ(outcome_of(1, [](World&) { throw 3; }),
            "invalid_argument: rank 0: an exception of type int");
  EXPECT_THAT(outcome_of(1, [](World&) { at::zeros({2}).view({3}); }),
              AllOf(StartsWith("invalid_argument: rank 0: c10::Error: "),
                    HasSubstr("shape '[3]' is invalid")));
}

TEST(Spawn, ADeadRankIsNamedWithItsSignalOrCode) {
  EXPECT_THAT(outcome_of(2,
                         [](World& world) {
                           if (world.rank() == 1) ::raise(SIGKILL);
                           sum_ranks(world);
                         }),
              AllOf(StartsWith("peer_lost: rank 1 (process "), HasSubstr("killed by SIGKILL")));
  EXPECT_THAT(outcome_of(2,
                         [](World& world) {
                           if (world.rank() == 1) ::_exit(9);
                           sum_ranks(world);
                         }),
              AllOf(StartsWith("peer_lost: rank 1 (process "), HasSubstr("exited with code 9")));
}

TEST(Spawn, SurvivorsAreToldWhoFailed) {
  const test::TemporaryFolder folder;
  outcome_of(2, [&](World& world) {
    try {
      sum_ranks(world);  // all have connected
      if (world.rank() == 1) throw std::logic_error("page 7");
      sum_ranks(world);
    } catch (const Error& error) {
      throw_if_error(base::write_file_atomic(folder.path() / "verdict", error.what()));
    }
  });
  EXPECT_THAT(*base::read_file(folder.path() / "verdict"),
              testing::ContainsRegex("rank 1 .host .*failed: std::logic_error: page 7; its last "
                                     "call was operation [0-9]+, all_reduce"));
}

TEST(Spawn, SurvivorsAreToldWhatNobodyCaught) {
  const test::TemporaryFolder folder;
  const std::string outcome = outcome_of(2, [&](World& world) {
    try {
      sum_ranks(world);  // all have connected
      if (world.rank() == 1) std::thread([] { throw std::range_error("page 7"); }).join();
      sum_ranks(world);
    } catch (const Error& error) {
      throw_if_error(base::write_file_atomic(folder.path() / "verdict", error.what()));
    }
  });
  EXPECT_EQ(outcome, "invalid_argument: rank 1: std::range_error: page 7");
  EXPECT_THAT(*base::read_file(folder.path() / "verdict"),
              testing::ContainsRegex("rank 1 .host .*failed: std::range_error: page 7"));
}

TEST(Spawn, RanksDoNotShareCoresForTheirThreads) {
  EXPECT_EQ(outcome_of(64,
                       [](World&) {
                         if (at::get_num_threads() != 1) throw Error(base::internal("threads"));
                       }),
            "ok");
}

TEST(Spawn, AProcessWithThreadsIsRefused) {
  std::jthread other([](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::yield();
  });
  EXPECT_THAT(outcome_of(1, [](World&) {}), HasSubstr("this process has 2"));
}

TEST(Spawn, TheCopiesKnowThePlan) {
  SpawnOptions options;
  options.connect.plan_json = "{\"ranks\": 2}";
  options.connect.configure = [](const std::string& plan_json, comm::GroupOptions& group) {
    group.name = plan_json;
  };
  spawn(
      2,
      [&](World& world) {
        if (world.plan_json() != "{\"ranks\": 2}" || world.group().name() != world.plan_json()) {
          throw Error(base::internal("no plan"));
        }
      },
      options);
}

}  // namespace
}  // namespace hanji::world
