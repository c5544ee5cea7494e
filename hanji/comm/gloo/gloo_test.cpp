#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "hanji/base/file.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/comm/internal/routine_cases.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/message.h"
#include "hanji/comm/reduce_scatter.h"

namespace hanji::comm {
namespace {

using namespace std::chrono_literals;
using internal::refusal;
using internal::run_ranks;
using schedule::ReduceOp;
using testing::AllOf;
using testing::HasSubstr;

/// Ranks as threads, each with a group of shared memory and the same ranks connected by Gloo.
void run_gloo_and_direct(int ranks, Bits bits,
                         const std::function<void(const Group&, const Group&)>& body) {
  run_ranks(ranks, [&](const Group& shm) {
    GroupOptions options = shm.options();
    options.bits = bits;
    options.name = "by gloo";
    body(shm, gloo::make_group(shm, options));
  });
}

at::Tensor rough_numbers(int64_t count, int rank, c10::ScalarType type) {
  return (at::sin(at::arange(count, at::kDouble) * 0.37 + rank) * 50 + 60).to(type);
}

TEST(GlooGroup, OrderedSumsHaveTheBitsOfSharedMemory) {
  for (const int ranks : {1, 2, 3}) {
    run_gloo_and_direct(ranks, Bits::kRun, [](const Group& shm, const Group& by_gloo) {
      for (const c10::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProd}) {
          for (const int64_t count : {0, 1, 7, 65537}) {
            at::Tensor a = rough_numbers(count, shm.rank(), type);
            at::Tensor b = a.clone();
            all_reduce(a, shm, {.op = op}).wait();
            all_reduce(b, by_gloo, {.op = op}).wait();
            EXPECT_TRUE(at::equal(a, b)) << shm.size() << " " << type << " " << count;
          }
        }
      }
    });
  }
}

TEST(GlooGroup, EveryRoutineAgreesWithSharedMemory) {
  for (const Bits bits : {Bits::kRun, Bits::kFast}) {
    run_gloo_and_direct(3, bits, [](const Group& shm, const Group& by_gloo) {
      EXPECT_EQ(by_gloo.engine(), "gloo");
      const auto all = [](const Group& group) {
        const at::Tensor mine = rough_numbers(999, group.rank(), at::kInt);
        at::Tensor reduced = mine.clone();
        all_reduce(reduced, group).wait();
        at::Tensor largest = mine.clone();
        all_reduce(largest, group, {.op = ReduceOp::kMax}).wait();
        at::Tensor root = mine.clone();
        broadcast(root, 2, group).wait();
        at::Tensor gathered = at::zeros({2997}, at::kInt);
        all_gather(gathered, mine, group).wait();
        at::Tensor scattered = at::zeros({333}, at::kInt);
        reduce_scatter(scattered, mine, group).wait();
        at::Tensor ordered = at::zeros({333});
        reduce_scatter(ordered, mine.to(at::kFloat), group).wait();
        barrier(group);
        return at::cat({reduced, largest, root, gathered, scattered, ordered.to(at::kInt)});
      };
      EXPECT_TRUE(at::equal(all(shm), all(by_gloo)));
      EXPECT_EQ(by_gloo.stats().operations, 7);
    });
  }
}

TEST(GlooGroup, CountsWhatItSends) {
  run_gloo_and_direct(2, Bits::kRun, [](const Group& shm, const Group& by_gloo) {
    at::Tensor tensor = at::ones({1000});
    all_reduce(tensor, by_gloo).wait();  // 2 N (p-1)/p elements of 4 bytes
    EXPECT_EQ(by_gloo.stats().network_bytes, 4000);
    EXPECT_EQ(shm.stats().network_bytes, 0);
  });
}

TEST(GlooGroup, AMismatchIsNamedOnEveryRank) {
  run_gloo_and_direct(2, Bits::kRun, [](const Group&, const Group& by_gloo) {
    at::Tensor tensor = at::ones({by_gloo.rank() + 4});
    try {
      all_reduce(tensor, by_gloo, {.label = "wte"}).wait();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kMismatch);
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("rank 1 called all_reduce(count 5"), HasSubstr("rank 0"),
                        HasSubstr("count 4"), HasSubstr("gloo_test.cpp:"), HasSubstr("wte")));
    }
  });
}

/// Threads of this process in which SIGPIPE is blocked.
int threads_without_sigpipe() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string status = base::read_file(task.path() / "status").or_throw();
    const size_t at = status.find("SigBlk:");
    const uint64_t blocked = std::stoull(status.substr(at + 7, 20), nullptr, 16);
    count += static_cast<int>(blocked >> (SIGPIPE - 1) & 1);
  }
  return count;
}

TEST(GlooGroup, ADeadPeersConnectionIsNoSignal) {
  run_gloo_and_direct(1, Bits::kRun, [](const Group&, const Group& by_gloo) {
    barrier(by_gloo);
    EXPECT_GE(threads_without_sigpipe(), 3) << "two that run calls, one that watches connections";
  });
  EXPECT_EQ(threads_without_sigpipe(), 0);
}

TEST(GlooGroup, ServesEveryRoutine) {
  for (const auto& [ranks, bits] :
       {std::pair(1, Bits::kRun), std::pair(2, Bits::kFast), std::pair(3, Bits::kRun)}) {
    run_gloo_and_direct(
        ranks, bits, [](const Group&, const Group& by_gloo) { internal::check_routines(by_gloo); });
  }
}

TEST(GlooGroup, OtherSharesAreNamedOnEveryRank) {
  run_gloo_and_direct(2, Bits::kRun, [](const Group&, const Group& by_gloo) {
    at::Tensor output = at::zeros({6});
    const std::vector<int64_t> counts = {by_gloo.rank() + 2, 4 - by_gloo.rank()};
    const at::Tensor input = at::ones({counts[by_gloo.rank()]});
    EXPECT_THAT(
        refusal([&] { all_gather(output, input, counts, by_gloo).wait(); }),
        AllOf(HasSubstr("mismatch: "), HasSubstr("rank 1 called all_gather(count 6, shares"),
              HasSubstr("rank 0 called all_gather(count 6, shares")));
  });
}

TEST(GlooGroup, MessagesThatDisagreeAreNamedOnBothEndsAlone) {
  run_gloo_and_direct(3, Bits::kRun, [](const Group&, const Group& by_gloo) {
    at::Tensor tensor = at::full({5}, by_gloo.rank());
    if (by_gloo.rank() > 0) {
      EXPECT_THAT(refusal([&] {
                    if (by_gloo.rank() == 2) send(tensor, 1, by_gloo, {.tag = 7}).wait();
                    if (by_gloo.rank() == 1) recv(tensor, 2, by_gloo, {.tag = 8}).wait();
                  }),
                  AllOf(HasSubstr("mismatch: "), HasSubstr("rank 1 called recv(count 5"),
                        HasSubstr("rank 2 called send(count 5"), HasSubstr("tag 7")));
    }
    barrier(by_gloo);
  });
}

TEST(GlooGroup, MessagesOfTwoRanksAreOneSequenceInAllTheirGroups) {
  run_gloo_and_direct(2, Bits::kRun, [](const Group&, const Group& by_gloo) {
    const Group again = by_gloo.subgroup({1, 0}, "again");  // where rank 0 is rank 1
    at::Tensor tensor = at::full({4}, by_gloo.rank());
    if (by_gloo.rank() == 0) send(tensor, 1, by_gloo).wait();
    if (by_gloo.rank() == 1) recv(tensor, 1, again).wait();
    EXPECT_EQ(tensor.sum().item<int64_t>(), 0);
  });
}

size_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// Rank 2 of three does not come. What the others are told, in turn.
std::vector<std::string> told_without_rank_2(Bits bits, void (*call)(const Group&, at::Tensor&)) {
  std::vector<std::string> told(3);
  run_gloo_and_direct(3, bits, [&](const Group& shm, const Group& by_gloo) {
    at::Tensor tensor = at::ones({5});
    const int rank = shm.rank();
    if (rank != 2) told[rank] = refusal([&] { call(by_gloo, tensor); });
    barrier(shm);  // until now rank 2 has kept its connections
  });
  told.pop_back();
  return told;
}

TEST(GlooGroup, ACallsOwnDeadlineEndsItNamesWhoIsAbsentAndLeavesNothingBehind) {
  run_gloo_and_direct(3, Bits::kRun, [](const Group&, const Group& by_gloo) { barrier(by_gloo); });
  const size_t threads = threads_of_this_process();
  const auto start = std::chrono::steady_clock::now();
  for (const Bits bits : {Bits::kRun, Bits::kFast}) {
    for (const std::string& told : told_without_rank_2(bits, [](const Group&group, at::Tensor&t) {
           all_reduce(t, group, {.label = "wte", .deadline = 200ms}).wait();
         })) {
      EXPECT_THAT(told, AllOf(HasSubstr("timeout: group by gloo: "), HasSubstr("all_reduce"),
                              HasSubstr("wte"), HasSubstr("gloo_test.cpp:"),
                              HasSubstr("within 0.2 s from absent ranks: 2;")));
    }
  }
  for (const std::string& told : told_without_rank_2(Bits::kRun, [](const Group&group, auto&t) {
         recv(t, 2, group, {.deadline = 200ms}).wait();
       })) {
    EXPECT_THAT(told, AllOf(HasSubstr("timeout: "), HasSubstr("recv at"),
                            HasSubstr("within 0.2 s from absent ranks: 2;")));
  }
  const auto soon = start + 20s;  // the group's own deadline is a minute
  while (threads_of_this_process() > threads && std::chrono::steady_clock::now() < soon) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_LE(threads_of_this_process(), threads);
  EXPECT_LT(std::chrono::steady_clock::now(), soon);
}

TEST(GlooGroup, DividesLikeSharedMemory) {
  run_gloo_and_direct(3, Bits::kRun, [](const Group&, const Group& by_gloo) {
    const std::vector<int> members = by_gloo.rank() == 1 ? std::vector{1} : std::vector{0, 2};
    const Group part = by_gloo.subgroup(members, "part");
    at::Tensor tensor = at::full({3}, by_gloo.rank());
    all_reduce(tensor, part).wait();
    EXPECT_EQ(tensor[0].item<int>(), by_gloo.rank() == 1 ? 1 : 2);
  });
}

TEST(GlooGroup, MeetsThroughAStoreOfTheCaller) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  test::run_threads(2, [&store](int rank) {
    const Group group = gloo::make_group(store, rank, 2);
    const Group again = group.subgroup({1, 0}, "again");
    at::Tensor tensor = at::ones({3});
    all_reduce(tensor, again).wait();
    EXPECT_EQ(tensor.sum().item<float>(), 6);
    EXPECT_EQ(again.rank(), 1 - rank);
  });
}

}  // namespace
}  // namespace hanji::comm
