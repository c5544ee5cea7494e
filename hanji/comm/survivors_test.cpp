// Groups that are split, compared, and made anew without the ranks that were killed.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/message.h"
#include "hanji/shm/liveness.h"
#include "hanji/test/run_processes.h"

namespace hanji::comm {
namespace {

using namespace std::chrono_literals;
using internal::refusal;
using internal::run_ranks;
using testing::HasSubstr;

int sum_of_ranks(const Group& group, int rank) {
  at::Tensor tensor = group.heap().empty({1000}, at::kInt, "test");
  tensor.fill_(rank);
  all_reduce(tensor, group).wait();
  return tensor[999].item<int>();
}

TEST(Split, JoinsEqualColoursInTheOrderOfTheirKeys) {
  run_ranks(5, [](const Group& world) {
    const int rank = world.rank();
    const auto part = world.split(rank == 4 ? -1 : rank % 2, -rank, "part");
    ASSERT_EQ(part.has_value(), rank != 4);
    if (!part) return;
    EXPECT_EQ(part->size(), 2);
    EXPECT_EQ(part->rank(), rank < 2 ? 1 : 0);
    EXPECT_EQ(sum_of_ranks(*part, rank), rank % 2 == 0 ? 2 : 4);
  });
}

TEST(Split, EqualKeysKeepTheOrderOfTheRanks) {
  run_ranks(3, [](const Group& world) {
    const auto all = world.split(7, 0, "all");
    EXPECT_EQ(all->rank(), world.rank());
  });
}

TEST(Translate, FindsARankInAnotherGroup) {
  run_ranks(4, [](const Group& world) {
    const std::vector<int> odd = {3, 1};
    const std::vector<int> even = {0, 2};
    const Group part = world.subgroup(world.rank() % 2 == 1 ? odd : even, "part");
    if (world.rank() % 2 == 0) return;
    EXPECT_EQ(world.translate(3, part), 0);
    EXPECT_EQ(world.translate(1, part), 1);
    EXPECT_EQ(world.translate(2, part), std::nullopt);
    EXPECT_EQ(part.translate(0, world), 3);
    EXPECT_THAT(refusal([&] { (void)part.translate(2, world); }), HasSubstr("invalid_argument"));
    EXPECT_THAT(refusal([&] { (void)part.translate(0, Group::alone()); }),
                HasSubstr("do not come from one group"));
  });
}

TEST(Groups, SeveralLiveAtOnceInAnyOrder) {
  run_ranks(4, [](const Group& world) {
    const int rank = world.rank();
    auto rows = world.split(rank / 2, rank, "rows");
    const auto columns = world.split(rank % 2, rank, "columns");
    EXPECT_EQ(sum_of_ranks(*columns, rank), rank % 2 == 0 ? 2 : 4);
    EXPECT_EQ(sum_of_ranks(*rows, rank), rank / 2 == 0 ? 1 : 5);
    rows.reset();
    const auto again = columns->split(0, -rank, "again");
    EXPECT_EQ(sum_of_ranks(*again, rank), rank % 2 == 0 ? 2 : 4);
    EXPECT_EQ(sum_of_ranks(world, rank), 6);
  });
}

std::unique_ptr<shm::Watchdog> watch(const std::shared_ptr<shm::Segment>& segment, int rank) {
  segment->join(rank);
  std::vector<base::Fd> pidfds;
  for (int peer = 0; peer < segment->ranks(); ++peer) {
    while (segment->pid(peer) == 0) ::usleep(100);
    pidfds.push_back(peer == rank ? base::Fd() : shm::open_pidfd(segment->pid(peer)).or_throw());
  }
  return shm::Watchdog::start(segment, rank, std::move(pidfds)).or_throw();
}

/// The first rank of the group sends to the last.
int message_through(const Group& group, int rank) {
  const int last = group.size() - 1;
  at::Tensor tensor = at::full({5}, rank, at::kInt);
  if (group.rank() == 0) send(tensor, last, group).wait();
  if (group.rank() == last) recv(tensor, 0, group).wait();
  return tensor[4].item<int>();
}

TEST(Survivors, GoOnAfterTwoKilledRanksOnTheSameHeap) {
  const auto segment = internal::make_segment(4);
  const auto answers = test::run_processes(4, [&](int rank) -> std::string {
    const auto watchdog = watch(segment, rank);
    Group group = Group::over_shm(segment, 0, {0, 1, 2, 3}, rank);
    const at::Tensor kept = group.heap().zeros({4}, at::kInt, "test").fill_(rank);
    std::string told;
    for (const int dying : {2, 0, -1}) {
      const auto pairs = group.split(group.rank() / 2, group.rank(), "pairs");
      told += fmt::format("{} {} {}; ", sum_of_ranks(group, rank), sum_of_ranks(*pairs, rank),
                          message_through(group, rank));
      if (dying == -1) break;
      const std::string error = refusal([&] {
        barrier(group);
        if (rank == dying) ::kill(::getpid(), SIGKILL);
        while (true) sum_of_ranks(group, rank);
      });
      if (error.find("peer_lost") != 0) return error;
      const Group before = group;
      group = group.survivors(30s);
      // The old one stays lost, whatever is asked of it.
      if (refusal([&] { barrier(before); }).find("peer_lost") != 0) return "it still works";
    }
    return told + fmt::format("kept {}", kept[3].item<int>());
  });
  EXPECT_EQ(answers[0], "(killed by signal 9)");
  EXPECT_EQ(answers[2], "(killed by signal 9)");
  EXPECT_EQ(answers[1], "6 1 1; 4 1 1; 4 4 1; kept 1");
  EXPECT_EQ(answers[3], "6 5 0; 4 3 0; 4 4 1; kept 3");
}

TEST(Survivors, AllGoOnAfterADeadlineHasEndedTheGroup) {
  run_ranks(2, [](const Group& group) {
    if (group.rank() == 0) {
      EXPECT_THAT(refusal([&] { barrier(group, {.deadline = 50ms}); }), HasSubstr("timeout"));
    }
    const Group again = group.survivors(30s);
    EXPECT_EQ(sum_of_ranks(again, again.rank()), 1);
    EXPECT_EQ(again.translate(1, group), 1);
    EXPECT_THAT(refusal([&] { (void)group.survivors(1s); }), HasSubstr("have met before"));
  });
}

}  // namespace
}  // namespace hanji::comm
