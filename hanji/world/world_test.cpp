#include "hanji/world/world.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/comm/all_reduce.h"
#include "hanji/test/run_ranks.h"
#include "hanji/trace/recorder.h"

namespace hanji::world {
namespace {

using test::run_ranks;
using testing::HasSubstr;

TEST(World, OfThreadsSumsAsAnyOther) {
  for (const int ranks : {1, 2, 3, 8}) {
    run_ranks(ranks, [&](World& world) {
      EXPECT_EQ(world.size(), ranks);
      at::Tensor sum = world.heap().empty({7}, at::kLong, "test");
      sum.fill_(world.rank() + 1);
      comm::all_reduce(sum, world.group()).wait();
      EXPECT_EQ(sum[6].item<int64_t>(), ranks * (ranks + 1) / 2);
    });
  }
}

TEST(World, TwoOfThemLiveInOneProcess) {
  std::vector<World> first = make_worlds(1);
  std::vector<World> second = make_worlds(1);
  for (World* world : {&first[0], &second[0]}) {
    at::Tensor tensor = at::ones({2});
    comm::all_reduce(tensor, world->group()).wait();
    EXPECT_EQ(tensor[0].item<float>(), 1);
  }
}

TEST(World, RecordsWhatItsGroupDoes) {
  run_ranks(2, [](World& world) {
    at::Tensor tensor = at::ones({2});
    comm::all_reduce(tensor, world.group()).wait();
    EXPECT_EQ(world.group().recorder(), world.recorder());
    const auto events = world.recorder()->events();  // a rank that waited has a span for that, too
    EXPECT_EQ(
        std::ranges::count_if(
            events, [&](const auto& e) { return world.recorder()->name(e.name) == "all_reduce"; }),
        1);
  });
}

/// What rank 0 is told in a wait for rank 1, which behaves as `other`.
std::string told_while(const std::function<void(World)>& other) {
  std::vector<World> worlds = make_worlds(2);
  std::string told = "nothing";
  test::run_threads(2, [&](int rank) {
    if (rank == 1) {
      try {
        other(std::move(worlds[1]));
      } catch (const std::runtime_error&) {
      }
      return;
    }
    at::Tensor tensor = at::ones({2});
    try {
      comm::all_reduce(tensor, worlds[0].group()).wait();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kPeerLost);
      told = error.what();
    }
  });
  return told;
}

TEST(World, LeftByAnExceptionEndsTheOthersWaits) {
  EXPECT_THAT(told_while([](const World&) { throw std::runtime_error("words"); }),
              HasSubstr("rank 1 was left by an exception"));
}

TEST(World, LeftInOrderIsToldToWhoStillWaits) {
  EXPECT_THAT(told_while([](const World&) {}), HasSubstr("rank 1"));
}

TEST(World, FailTellsTheOthersWhy) {
  EXPECT_THAT(told_while([](const World& world) { world.fail(base::corrupt("page 7")); }),
              testing::ContainsRegex("rank 1 .host .*failed: corrupt: page 7"));
}

TEST(World, FailTellsTheWordsOfAProgram) {
  EXPECT_THAT(
      told_while([](const World& world) { world.fail("std::runtime_error: page 7"); }),
      testing::ContainsRegex("rank 1 .host .*failed: std::runtime_error: page 7; it made no call"));
}

TEST(World, TellsTheVerdictAboutAnotherRankOnly) {
  const std::vector<World> worlds = make_worlds(2);
  EXPECT_EQ(worlds[0].verdict(), "");
  worlds[1].fail("page 7");
  EXPECT_THAT(worlds[0].verdict(), HasSubstr("failed: page 7"));
  EXPECT_EQ(worlds[1].verdict(), "");
}

TEST(StatusOf, KeepsCodesAndWords) {
  const auto status = [](const auto& exception) {
    return status_of(std::make_exception_ptr(exception)).to_string();
  };
  EXPECT_EQ(status(Error(base::timeout("late"))), "timeout: late");
  EXPECT_EQ(status(std::out_of_range("far")), "internal: std::out_of_range: far");
}

}  // namespace
}  // namespace hanji::world
