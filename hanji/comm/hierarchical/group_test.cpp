#include "hanji/comm/hierarchical/group.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/all_to_all.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/comm/internal/desync_cases.h"
#include "hanji/comm/internal/routine_cases.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/message.h"
#include "hanji/comm/prepare.h"
#include "hanji/comm/reduce.h"
#include "hanji/comm/tree_reduce.h"
#include "hanji/shm/hang.h"
#include "hanji/shm/liveness.h"
#include "hanji/trace/recorder.h"

namespace hanji::comm::hierarchical {
namespace {

using namespace std::chrono_literals;
using internal::refusal;
using schedule::ReduceOp;
using testing::AllOf;
using testing::HasSubstr;

/// The parts of a "host" of this process.
struct TestHosts {
  std::vector<int> host_of;                             ///< By rank.
  std::vector<std::shared_ptr<shm::Segment>> segments;  ///< By host.

  int rail(int rank) const {
    return static_cast<int>(std::count(host_of.begin(), host_of.begin() + rank, host_of[rank]));
  }
};

TestHosts make_hosts(std::vector<int> host_of) {
  TestHosts hosts{std::move(host_of), {}};
  const int num_hosts = *std::ranges::max_element(hosts.host_of) + 1;
  for (int host = 0; host < num_hosts; ++host) {
    hosts.segments.push_back(
        internal::make_segment(static_cast<int>(std::ranges::count(hosts.host_of, host))));
  }
  return hosts;
}

/// Calls body(group) on one thread per rank: shared memory per host, Gloo on the loopback between.
void run_hosts(
    const TestHosts& hosts, const std::function<void(const Group&)>& body,
    const GroupOptions& options = {},
    const internal::ChangeOptions& change = [](GroupOptions&, int) {}) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  test::run_threads(static_cast<int>(hosts.host_of.size()), [&](int rank) {
    GroupOptions mine = options;
    mine.deadline = std::min<std::chrono::nanoseconds>(mine.deadline, std::chrono::seconds(60));
    change(mine, rank);
    const auto& segment = hosts.segments[hosts.host_of[rank]];
    // As in a world: the segment knows what its ranks are called among all.
    trace::Recorder::format(segment->trace_memory(hosts.rail(rank)), rank,
                            static_cast<int>(hosts.host_of.size()));
    std::vector<int> members(segment->ranks());
    std::iota(members.begin(), members.end(), 0);
    Group local = Group::over_shm(segment, 0, members, hosts.rail(rank), mine);
    body(make_group(std::move(local), {hosts.host_of, rank},
                    gloo::make_join(store, rank, gloo::kLoopback), mine));
  });
}

void run_hosts(const std::vector<int>& host_of, const std::function<void(const Group&)>& body,
               const GroupOptions& options = {}) {
  run_hosts(make_hosts(host_of), body, options);
}

at::Tensor rough_numbers(int64_t count, int rank, c10::ScalarType type = at::kFloat) {
  return (at::sin(at::arange(count, at::kDouble) * 0.37 + rank) * 50 + 60).to(type);
}

/// Every case that all engines share but the one of the order of sums, which equal hosts keep for
/// floats of 32 and 64 bits.
void check_cases(const Group& group) {
  for (const internal::RoutineCase& one : internal::routine_cases()) {
    if (one.name == "order") continue;
    for (const int64_t count : {0, 1, 7, 3001}) {
      SCOPED_TRACE(fmt::format("{}, {} elements, rank {}", one.name, count, group.rank()));
      one.check(group, count);
    }
  }
}

TEST(HierarchicalGroup, ServesEveryRoutineOnEqualHosts) {
  run_hosts({0, 0, 1, 1}, check_cases);
  run_hosts({0, 1, 1, 0, 2, 2}, check_cases);
}

TEST(HierarchicalGroup, ServesEveryRoutineOnHostsOfDifferentSizes) {
  run_hosts({0, 1, 1, 1, 0}, check_cases);
}

TEST(HierarchicalGroup, ServesEveryRoutineByTheEnginesOwnAlgorithms) {
  GroupOptions options;
  options.bits = Bits::kFast;
  run_hosts({0, 0, 1, 1}, internal::check_routines, options);
}

TEST(HierarchicalGroup, SumsIntoAnotherTensorAndLeavesTheGivenOne) {
  for (const std::vector<int>& host_of : {std::vector{0, 1}, {0, 0, 1, 1}, {0, 1, 1}}) {
    run_hosts(host_of, [&](const Group& group) {
      const auto size = static_cast<int>(host_of.size());
      Call prepared = prepare(schedule::Routine::kAllReduce, at::kFloat, {5}, group);
      // Some ranks sum in place.
      at::Tensor given = at::full({5}, 1.0F + static_cast<float>(group.rank()));
      at::Tensor sum = group.rank() == 1 ? given : at::full({5}, -100.0F);
      const float expected = static_cast<float>(size * (size + 1)) / 2;
      for (const bool again : {false, true}) {
        again ? prepared.start(sum, given).wait() : all_reduce(sum, given, group).wait();
        EXPECT_TRUE(at::equal(sum, at::full({5}, expected))) << sum << again;
        if (group.rank() == 1) given.fill_(2.0F);
        EXPECT_EQ(given[4].item<float>(), 1.0F + static_cast<float>(group.rank()));
      }
    });
  }
}

TEST(HierarchicalGroup, EqualHostsGiveTheBitsOfOneHost) {
  constexpr int64_t kCount = 1 << 20;  // several chunks of doubles
  std::vector<at::Tensor> sums(2);
  internal::run_ranks(4, [&](const Group& group) {
    at::Tensor tensor = rough_numbers(kCount, group.rank(), at::kDouble);
    all_reduce(tensor, group, {.op = ReduceOp::kAvg}).wait();
    if (group.rank() == 0) sums[0] = tensor;
  });
  run_hosts({0, 0, 1, 1}, [&](const Group& group) {
    at::Tensor tensor = rough_numbers(kCount, group.rank(), at::kDouble);
    all_reduce(tensor, group, {.op = ReduceOp::kAvg}).wait();
    if (group.rank() == 3) sums[1] = tensor;
  });
  EXPECT_TRUE(at::equal(sums[0], sums[1]));
}

TEST(HierarchicalGroup, SendsNoByteBetweenHostsTwice) {
  for (const int num_hosts : {2, 3}) {
    std::vector<int> host_of;
    for (int rank = 0; rank < 2 * num_hosts; ++rank) host_of.push_back(rank / 2);
    run_hosts(host_of, [num_hosts](const Group& group) {
      constexpr int64_t kCount = 3 << 20;  // three chunks of floats
      at::Tensor tensor = group.heap().empty({kCount}, at::kFloat, "test");
      tensor.fill_(group.rank());
      all_reduce(tensor, group).wait();
      EXPECT_EQ(tensor[kCount - 1].item<float>(), num_hosts * (2 * num_hosts - 1));

      at::Tensor sent = at::full({1}, group.stats().network_bytes, at::kLong);
      all_reduce(sent, group).wait();
      // Of all hosts together, 2N(h-1)/h each.
      EXPECT_EQ(sent.item<int64_t>(), 2 * 4 * kCount * (num_hosts - 1));
    });
  }
}

TEST(HierarchicalGroup, RanksAreNamedByTheirCoordinatesInGroupsOfThem) {
  GroupOptions options;
  options.rank_names =
      RankNames({"0 (dp=0,tp=0)", "1 (dp=0,tp=1)", "2 (dp=1,tp=0)", "3 (dp=1,tp=1)"});
  const auto across = [](const Group& group) {
    const int tp = group.rank() % 2;
    const Group data = group.subgroup({tp, tp + 2}, "data");
    at::Tensor tensor = at::ones({4 + data.rank()});
    EXPECT_THAT(refusal([&] { all_reduce(tensor, data).wait(); }),
                AllOf(HasSubstr(fmt::format("rank {0} (dp=1,tp={1}) called", tp + 2, tp)),
                      HasSubstr(fmt::format("rank {0} (dp=0,tp={0}) called", tp))));
  };
  run_hosts({0, 0, 1, 1}, across, options);
}

TEST(HierarchicalGroup, AMismatchIsNamedOnEveryRankOfEveryHost) {
  for (const int wrong : {1, 2}) {
    run_hosts({0, 0, 1, 1}, [wrong](const Group& group) {
      at::Tensor tensor = at::ones({group.rank() == wrong ? 5 : 4});
      EXPECT_THAT(refusal([&] { all_reduce(tensor, group, {.label = "wte"}).wait(); }),
                  AllOf(HasSubstr("mismatch: "), HasSubstr("count 5"), HasSubstr("count 4"),
                        HasSubstr(fmt::format("rank {} called", std::max(wrong, 1))),
                        HasSubstr("group_test.cpp:"), HasSubstr("wte")));
      EXPECT_EQ(tensor.sum().item<float>(), static_cast<float>(tensor.numel()));
    });
  }
}

/// Three ranks on two hosts, as `host_of` says.
internal::DesyncEngine desync_engine(const std::vector<int>& host_of) {
  const auto run = [host_of](const auto& body, const auto& change) {
    run_hosts(make_hosts(host_of), body, {}, change);
  };
  return {fmt::format("hosts {}", fmt::join(host_of, " ")), run};
}

class HierarchicalDesync : public testing::TestWithParam<internal::DesyncRoutine> {};

TEST_P(HierarchicalDesync, IsNamedOnEveryRankOfEveryHost) {
  internal::check_disagreements(desync_engine({0, 0, 1}), GetParam());
  internal::check_disagreements(desync_engine({0, 1, 1}), GetParam());
}

INSTANTIATE_TEST_SUITE_P(InEveryRoutine, HierarchicalDesync,
                         testing::ValuesIn(internal::desync_routines()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(HierarchicalDesyncOf, WaysMessagesAndGroupsIsNamedOnEveryRank) {
  for (const std::vector<int>& host_of : {std::vector{0, 0, 1}, std::vector{0, 1, 1}}) {
    const internal::DesyncEngine engine = desync_engine(host_of);
    internal::check_other_ways(engine);
    internal::check_messages(engine);
    internal::check_crossed_groups(engine);
    internal::check_subgroups(engine);
  }
}

TEST(HierarchicalGroup, ARankThatNeverComesIsNamedOnEveryHost) {
  GroupOptions options;
  options.deadline = 1s;
  run_hosts(
      {0, 0, 1, 1},
      [](const Group& group) {
        if (group.rank() == 3) std::this_thread::sleep_for(3s);
        if (group.rank() == 3) return;
        EXPECT_THAT(refusal([&] { barrier(group); }),
                    AllOf(HasSubstr("timeout: "), testing::ContainsRegex("ranks? 3"),
                          testing::Not(HasSubstr("absent rank 1"))))
            << group.rank();
      },
      options);
}

shm::HangVerdict judge(const shm::Segment& segment, std::chrono::nanoseconds patience) {
  const base::Fd fd(::fcntl(segment.fd(), F_DUPFD_CLOEXEC, 0));
  return shm::judge(shm::take_snapshot(fd).or_throw(), patience);
}

/// Waits until `segment` shows that its ranks wait for others elsewhere, in a sentence that begins
/// with `start`: a rank that has what it waited for is seen waiting until it runs again. The last
/// sentence.
std::string await_hang(const shm::Segment& segment, const std::string& start) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  shm::HangVerdict verdict;
  while ((verdict.kind != shm::HangKind::kElsewhere || !verdict.sentence.starts_with(start)) &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(1ms);
    verdict = judge(segment, 20ms);
  }
  return verdict.sentence;
}

TEST(HierarchicalGroup, WhoWaitsForAnotherHostIsSeenInTheMemoryOfItsOwn) {
  const TestHosts hosts = make_hosts({0, 0, 1});
  run_hosts(hosts, [&hosts](const Group& group) {
    at::Tensor tensor = at::ones({5});
    if (group.rank() == 2) {
      const std::string start = "ranks 0 and 1 wait in operation 1 of group ";
      EXPECT_THAT(await_hang(*hosts.segments[0], start),
                  AllOf(testing::StartsWith(start),
                        HasSubstr("all_reduce(sum, float32, 5 elements) at group_test.cpp:"),
                        HasSubstr("(wte)"), HasSubstr("what rank 2 does is not known here")));
    }
    all_reduce(tensor, group, {.label = "wte"}).wait();
    if (group.rank() == 2) {
      const std::string start = "rank 1 waits in message 1 from rank 2 to rank 1, recv(";
      EXPECT_THAT(
          await_hang(*hosts.segments[0], start),
          AllOf(testing::StartsWith(start), HasSubstr("what rank 2 does is not known here")));
      send(tensor, 1, group).wait();
    }
    if (group.rank() == 1) recv(tensor, 2, group).wait();
    barrier(group);
  });
}

TEST(HierarchicalGroup, ADeadRankEndsTheWaitOfItsTwins) {
  const TestHosts hosts = make_hosts({0, 0, 1, 1});
  run_hosts(hosts, [&hosts](const Group& group) {
    if (group.rank() == 3) {
      shm::Segment& segment = *hosts.segments[1];
      segment.abort(1, Code::kPeerLost, shm::describe_rank(segment, 1) + " was killed");
      return;
    }
    EXPECT_THAT(refusal([&] { barrier(group); }),
                AllOf(HasSubstr("peer_lost: "), HasSubstr("rank 3 (host ")))
        << group.rank();
  });
}

TEST(HierarchicalGroup, DividesAcrossAndWithinHosts) {
  run_hosts({0, 0, 1, 1}, [](const Group& group) {
    const int rank = group.rank();
    const bool odd = rank % 2 == 1;
    const Group across = group.subgroup(odd ? std::vector{3, 1} : std::vector{0, 2}, "across");
    at::Tensor tensor = at::full({1000}, rank);
    all_reduce(tensor, across).wait();
    EXPECT_EQ(tensor[999].item<int64_t>(), odd ? 4 : 2);
    EXPECT_EQ(across.rank(), odd ? (rank == 3 ? 0 : 1) : rank / 2);
    const Group within = group.subgroup(rank < 2 ? std::vector{0, 1} : std::vector{2, 3}, "within");
    EXPECT_EQ(within.engine(), "shm");
    all_reduce(tensor, within).wait();
    EXPECT_EQ(tensor[0].item<int64_t>(), 6);
    EXPECT_EQ(&within.heap().raw(), &group.heap().raw());
  });
}

TEST(HierarchicalGroup, CarriesMessagesBetweenAnyTwoRanks) {
  run_hosts({0, 0, 1, 1}, [](const Group& group) {
    for (int distance = 1; distance < 4; ++distance) {
      const at::Tensor mine = at::full({77}, group.rank());
      at::Tensor got = at::zeros({77}, at::kLong);
      Work sent = send(mine, (group.rank() + distance) % 4, group);
      recv(got, (group.rank() + 4 - distance) % 4, group).wait();
      sent.wait();
      EXPECT_EQ(got[76].item<int64_t>(), (group.rank() + 4 - distance) % 4);
    }
  });
}

// Of three messages the third is written once the first has been taken, by a rank that waits for
// something else by then.
constexpr int kMoreThanStagingHolds = 3;

std::vector<Work> send_several(const at::Tensor& tensor, int to, const Group& group) {
  std::vector<Work> sent;
  for (int i = 0; i < kMoreThanStagingHolds; ++i) sent.push_back(send(tensor, to, group));
  return sent;
}

/// Rank 0 sends to `taker` and then waits for `giver`, who waits for `taker`, on two hosts of two.
void expect_sends_while_it_waits(int taker, int giver) {
  const auto body = [=](const Group& group) {
    at::Tensor tensor = at::full({5000}, 7);
    if (group.rank() == 0) {
      std::vector<Work> sent = send_several(tensor, taker, group);
      recv(tensor, giver, group).wait();
      for (Work& work : sent) work.wait();
    } else if (group.rank() == taker) {
      std::this_thread::sleep_for(50ms);
      for (int i = 0; i < kMoreThanStagingHolds; ++i) recv(tensor, 0, group).wait();
      send(tensor, giver, group).wait();
    } else if (group.rank() == giver) {
      recv(tensor, taker, group).wait();
      send(tensor, 0, group).wait();
    }
    EXPECT_EQ(tensor[4999].item<int64_t>(), 7);
  };
  run_hosts({0, 0, 1, 1}, body, {.deadline = 10s});
}

TEST(HierarchicalGroup, WaitingForAnotherHostGoesOnSendingInsideThisOne) {
  expect_sends_while_it_waits(1, 3);
}

TEST(HierarchicalGroup, WaitingInsideAHostGoesOnSendingToAnother) {
  expect_sends_while_it_waits(2, 1);
}

TEST(HierarchicalGroup, GrainsOwnedOtherwiseAreNamedOnEveryRank) {
  run_hosts({0, 0, 1}, [](const Group& group) {
    const int64_t mine = group.rank() == 2 ? 2 : 1;  // rank 2 believes that rank 0 has two grains
    const std::vector<layout::Range> owners = {{0, mine}, {mine, 3}, {3, 4}};
    const schedule::GrainTree tree = schedule::grain_tree(4, owners);
    at::Tensor output = at::zeros({4});
    EXPECT_THAT(refusal([&] {
                  tree_all_reduce(at::ones({2, 4}), output, tree, group).wait();
                }),
                AllOf(HasSubstr("mismatch: "), HasSubstr("rank 2 called tree_reduce"),
                      HasSubstr("shares")));
  });
}

TEST(HierarchicalGroup, RefusesHostsThatDoNotFitTheLocalGroup) {
  EXPECT_THAT(refusal([] {
                make_group(Group::alone(), {{0, 1, 1}, 1}, nullptr, {.name = "odd"});
              }),
              AllOf(HasSubstr("group odd"), HasSubstr("place 0 of 2")));
}

}  // namespace
}  // namespace hanji::comm::hierarchical
