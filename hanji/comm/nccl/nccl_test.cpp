#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/all_to_all.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/gather.h"
#include "hanji/comm/internal/desync_cases.h"
#include "hanji/comm/internal/routine_cases.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/message.h"
#include "hanji/comm/nccl/group.h"
#include "hanji/comm/nccl/internal/connect.h"
#include "hanji/comm/nccl/internal/fake_stream.h"
#include "hanji/comm/reduce.h"
#include "hanji/comm/reduce_scatter.h"
#include "hanji/comm/scatter.h"

namespace hanji::comm {
namespace {

using internal::numbers;
using internal::run_ranks;
using schedule::ReduceOp;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

/// A function of the fake library that orders a fault or tells what happened.
template <class Function>
Function* order(const char* name) {
  void* library = ::dlopen(HANJI_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(::dlsym(library, name));
}
int count_of(const char* call) { return order<int(const char*)>("fake_nccl_count")(call); }

/// When what is launched on a stream of the tests runs.
enum class Runs : bool {
  kAtOnce,  ///< Before the launch returns, as torch's operations on the host do.
  kLater,   ///< In the stream's order, while the host goes on.
};

/// A stream of plain memory.
class HostStream final : public nccl::Stream {
 public:
  struct Seen {
    std::atomic<bool> busy = false;  ///< Nothing is told as done.
    std::atomic<int> holds = 0;
  };
  HostStream(std::shared_ptr<Seen> seen, Runs runs) : seen_(std::move(seen)) {
    if (runs == Runs::kLater) queue_ = std::make_shared<nccl::fake::Stream>();
  }

  void* handle() override { return queue_.get(); }
  std::shared_ptr<nccl::Event> mark_current() override {  // the host is there already
    return std::make_shared<Mark>(seen_, nullptr);
  }
  void wait_for(nccl::Event&) override {}
  std::shared_ptr<nccl::Event> mark() override { return std::make_shared<Mark>(seen_, queue_); }
  void keep(const at::Tensor&) override {}
  void run(const std::function<void()>& launch) override { launch(); }

 private:
  struct Mark final : nccl::Event {
    Mark(std::shared_ptr<Seen> all, std::shared_ptr<nccl::fake::Stream> of)
        : seen(std::move(all)), queue(std::move(of)), at(queue ? queue->mark() : 0) {}
    bool done() override { return !seen->busy && (!queue || queue->passed(at)); }
    void hold_current() override {  // torch's current stream is the host itself
      ++seen->holds;
      if (queue) queue->wait(at);
    }
    std::shared_ptr<Seen> seen;
    std::shared_ptr<nccl::fake::Stream> queue;
    uint64_t at;
  };
  std::shared_ptr<Seen> seen_;
  std::shared_ptr<nccl::fake::Stream> queue_;
};

std::shared_ptr<const nccl::Library> fake_library() {
  return nccl::Library::load({.library = HANJI_FAKE_NCCL}).or_throw();
}

Group over_fake(const Group& meet, const GroupOptions& options,
                const std::shared_ptr<HostStream::Seen>& seen, Runs runs = Runs::kAtOnce) {
  // The first one carries the collectives, whose lists torch's operations have a part in.
  const auto made = std::make_shared<std::atomic<bool>>(false);
  const auto source = [=] {
    return std::make_shared<HostStream>(seen, made->exchange(true) ? Runs::kLater : runs);
  };
  return nccl::group_over({fake_library(), source, at::kCPU}, meet, options);
}

/// Calls body(group of shared memory, the same ranks over the fake library).
void run_both(int ranks, Bits bits, Runs runs,
              const std::function<void(const Group&, const Group&)>& body) {
  run_ranks(ranks, [&](const Group& shm) {
    GroupOptions options = shm.options();
    options.bits = bits;
    options.name = "by nccl";
    body(shm, over_fake(shm, options, std::make_shared<HostStream::Seen>(), runs));
  });
}

/// With native calls alone in kFast, which run later.
void run_both(int ranks, Bits bits, const std::function<void(const Group&, const Group&)>& body) {
  run_both(ranks, bits, bits == Bits::kFast ? Runs::kLater : Runs::kAtOnce, body);
}

at::Tensor rough(int64_t count, int rank, c10::ScalarType type, c10::Device device = at::kCPU) {
  return (at::sin(at::arange(count, at::kDouble) * 0.37 + rank) * 50 + 60).to(type).to(device);
}

/// What every routine leaves on a rank, whole numbers, one after another.
at::Tensor all_routines(const Group& group, c10::Device device) {
  const int ranks = group.size();
  const int me = group.rank();
  const int root = ranks - 1;
  const auto zeros = [&](int64_t count) {
    return at::zeros({count}, at::TensorOptions(at::kInt).device(device));
  };
  const at::Tensor mine = numbers(6 * ranks, me, at::kInt).to(device);
  std::vector<at::Tensor> left;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    left.push_back(mine.clone());
    all_reduce(left.back(), group, {.op = op}).wait();
  }
  left.push_back(mine.clone());
  broadcast(left.back(), root, group).wait();
  left.push_back(zeros(mine.numel() * ranks));
  all_gather(left.back(), mine, group).wait();
  left.push_back(zeros(6));
  reduce_scatter(left.back(), mine, group).wait();
  left.push_back(zeros(mine.numel()));
  reduce(left.back(), mine, root, group).wait();
  left.push_back(zeros(mine.numel() * ranks));
  gather(left.back(), mine, root, group).wait();
  left.push_back(zeros(6));
  scatter(left.back(), mine, root, group).wait();
  left.push_back(zeros(mine.numel()));
  all_to_all(left.back(), mine, group).wait();
  barrier(group);
  return at::cat(left).cpu();
}

bool is_of_messages(const internal::RoutineCase& one) {
  return one.name == std::string_view("messages");
}

TEST(Nccl, EveryRoutineRuns) {
  for (const Bits bits : {Bits::kRun, Bits::kFast}) {
    for (const int ranks : {1, 2, 3}) {
      run_both(ranks, bits, Runs::kAtOnce, [](const Group& shm, const Group& by_nccl) {
        EXPECT_EQ(by_nccl.engine(), "nccl");
        for (const internal::RoutineCase& one : internal::routine_cases()) {
          if (is_of_messages(one)) continue;
          for (const int64_t count : {0, 1, 1027}) one.check(by_nccl, count);
        }
        EXPECT_TRUE(at::equal(all_routines(by_nccl, at::kCPU), all_routines(shm, at::kCPU)));
      });
    }
  }
}

TEST(NcclMessages, RunInRingsBesideACollective) {
  for (const int ranks : {2, 3}) {
    run_both(ranks, Bits::kFast, [](const Group&, const Group& by_nccl) {
      for (const internal::RoutineCase& one : internal::routine_cases()) {
        if (!is_of_messages(one)) continue;
        for (const int64_t count : {0, 1, 1027}) one.check(by_nccl, count);
      }
    });
  }
}

TEST(Nccl, OrderedSumsHaveTheBitsOfSharedMemory) {
  run_both(3, Bits::kRun, [](const Group& shm, const Group& by_nccl) {
    for (const c10::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProd}) {
        for (const int64_t count : {0, 1, 7, 4099}) {
          at::Tensor a = rough(count, shm.rank(), type);
          at::Tensor b = a.clone();
          all_reduce(a, shm, {.op = op}).wait();
          all_reduce(b, by_nccl, {.op = op}).wait();
          EXPECT_TRUE(at::equal(a, b)) << type << " " << count;
        }
      }
    }
  });
}

TEST(Nccl, NativeSumsAreThoseOfNccl) {
  const int before = count_of("ncclAllReduce");
  run_both(2, Bits::kFast, [](const Group& shm, const Group& by_nccl) {
    for (const c10::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      at::Tensor sum = numbers(100, shm.rank(), type);
      all_reduce(sum, by_nccl, {.op = ReduceOp::kAvg}).wait();
      EXPECT_TRUE(at::equal(sum, (numbers(100, 0, at::kFloat) + 0.5).to(type))) << type;
    }
  });
  EXPECT_EQ(count_of("ncclAllReduce") - before, 8);
}

TEST(Nccl, ADifferentCallIsNamedOnEveryRankBeforeAByteMoves) {
  run_both(3, Bits::kFast, [](const Group& shm, const Group& by_nccl) {
    at::Tensor tensor = numbers(shm.rank() == 1 ? 5 : 4, 0);
    const at::Tensor before = tensor.clone();
    try {
      all_reduce(tensor, by_nccl).wait();
      ADD_FAILURE() << "the mismatch went unnoticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), base::Code::kMismatch);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr("count 5")));
    }
    EXPECT_TRUE(at::equal(tensor, before));
  });
}

internal::DesyncEngine desync_engine() {
  return {"nccl", [](const auto& body, const auto& change) {
            run_ranks(internal::kDesyncRanks, [&](const Group& shm) {
              GroupOptions options = shm.options();
              change(options, shm.rank());
              body(over_fake(shm, options, std::make_shared<HostStream::Seen>()));
            });
          }};
}

class NcclDesync : public testing::TestWithParam<internal::DesyncRoutine> {};

TEST_P(NcclDesync, IsNamedOnEveryRank) {
  internal::check_disagreements(desync_engine(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(InEveryRoutine, NcclDesync, testing::ValuesIn(internal::desync_routines()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(NcclDesyncOf, WaysAndSubgroupsIsNamedOnEveryRank) {
  internal::check_other_ways(desync_engine());
  internal::check_subgroups(desync_engine());
}

TEST(Nccl, WhatNcclRefusesIsSaidInItsWordsAndEndsTheCommunicator) {
  const int before = count_of("ncclCommAbort");
  run_both(2, Bits::kFast, [](const Group&, const Group& by_nccl) {
    at::Tensor tensor = numbers(4, 0);
    barrier(by_nccl);
    order<void(const char*, int)>("fake_nccl_answer")("ncclBroadcast", 5);
    try {
      broadcast(tensor, 0, by_nccl).wait();
      ADD_FAILURE() << "the error went unnoticed";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("ncclBroadcast: bad (as the test ordered)"),
                                      HasSubstr("nccl_test.cpp")));
    }
    EXPECT_THROW(barrier(by_nccl), Error);
  });
  order<void(const char*, int)>("fake_nccl_answer")("ncclBroadcast", 0);
  EXPECT_EQ(count_of("ncclCommAbort") - before, 2);
}

TEST(Nccl, WaitHoldsTheStreamAndNotTheHost) {
  run_ranks(2, [](const Group& shm) {
    const auto seen = std::make_shared<HostStream::Seen>();
    const Group group = over_fake(shm, shm.options(), seen);
    seen->busy = true;
    at::Tensor tensor = numbers(4, shm.rank());
    Work work = all_reduce(tensor, group, {.op = ReduceOp::kMax});
    work.wait();
    EXPECT_EQ(seen->holds, 1);
    EXPECT_FALSE(work.done());
    seen->busy = false;
    EXPECT_TRUE(work.done());
  });
}

TEST(Nccl, ADeviceThatDoesNotFinishIsNamedAtTheDeadline) {
  run_ranks(2, [](const Group& shm) {
    const auto seen = std::make_shared<HostStream::Seen>();
    GroupOptions options = shm.options();
    options.deadline = std::chrono::milliseconds(200);
    const Group group = over_fake(shm, options, seen);
    barrier(group);
    seen->busy = true;
    at::Tensor tensor = numbers(4, shm.rank());
    Work work = all_reduce(tensor, group, {.op = ReduceOp::kMax});
    try {
      while (!work.done()) std::this_thread::yield();
      ADD_FAILURE() << "the deadline passed unnoticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), base::Code::kTimeout);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("all_reduce as call 2"), HasSubstr("0.2 s")));
    }
  });
}

TEST(Nccl, AnErrorOfTheDeviceEndsTheWait) {
  run_ranks(2, [](const Group& shm) {
    const auto seen = std::make_shared<HostStream::Seen>();
    const Group group = over_fake(shm, shm.options(), seen);
    barrier(group);
    seen->busy = true;
    at::Tensor tensor = numbers(4, shm.rank());
    Work work = all_reduce(tensor, group, {.op = ReduceOp::kMax});
    work.wait();   // launched
    barrier(shm);  // on every rank
    order<void(int)>("fake_nccl_async_error")(6);
    try {
      while (!work.done()) std::this_thread::yield();
      ADD_FAILURE() << "the error went unnoticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), base::Code::kPeerLost);
      EXPECT_THAT(error.what(), HasSubstr("remote process exited"));
    }
    barrier(shm);
  });
  order<void(int)>("fake_nccl_async_error")(0);
}

TEST(Nccl, PairsAreConnectedWhenAGroupIsMade) {
  for (const int ranks : {1, 3}) {
    const int before = count_of("ncclRecv");
    run_both(ranks, Bits::kFast, [](const Group&, const Group&) {});
    EXPECT_EQ(count_of("ncclRecv") - before, ranks == 1 ? 0 : ranks * ranks);
  }
}

void expect_timeout(const std::function<void()>& call, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "the deadline passed unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), base::Code::kTimeout);
    for (const std::string& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
  }
}

/// The group would wait for a minute, and wait() would not look at the device at all.
TEST(NcclDeadlines, OfACallIsKeptByItsWaitAndEndsTheCommunicator) {
  const int before = count_of("ncclCommAbort");
  run_ranks(2, [](const Group& shm) {
    const auto seen = std::make_shared<HostStream::Seen>();
    const Group group = over_fake(shm, shm.options(), seen);
    barrier(group);
    const int holds = seen->holds;
    seen->busy = true;
    at::Tensor tensor = numbers(4, shm.rank());
    constexpr std::chrono::nanoseconds kSoon = std::chrono::milliseconds(200);
    Work work = all_reduce(tensor, group, {.op = ReduceOp::kMax, .deadline = kSoon});
    expect_timeout([&] { work.wait(); }, {"rank " + std::to_string(shm.rank()) + " of 2",
                                          "all_reduce as call 2", "nccl_test.cpp", "within 0.2 s"});
    EXPECT_EQ(seen->holds, holds);
    EXPECT_THROW(barrier(group), Error);
  });
  EXPECT_EQ(count_of("ncclCommAbort") - before, 2);
}

TEST(NcclDeadlines, OfACallThatEndsInTimeLeavesItsResult) {
  run_ranks(2, [](const Group& shm) {
    const auto seen = std::make_shared<HostStream::Seen>();
    const Group group = over_fake(shm, shm.options(), seen, Runs::kLater);
    at::Tensor tensor = numbers(5000, shm.rank());
    all_reduce(tensor, group, {.op = ReduceOp::kMax, .deadline = std::chrono::seconds(30)}).wait();
    EXPECT_EQ(seen->holds, 0);  // the host itself has waited
    EXPECT_TRUE(at::equal(tensor, at::maximum(numbers(5000, 0), numbers(5000, 1))));
  });
}

TEST(NcclDeadlines, OfACallNameTheRankThatDoesNotComeToIt) {
  run_ranks(3, [](const Group& shm) {
    const Group group = over_fake(shm, shm.options(), std::make_shared<HostStream::Seen>());
    const Group there = shm.subgroup({0, 1, 2}, "there");
    at::Tensor tensor = numbers(4, 0);
    if (shm.rank() != 1) {
      const AllReduceOptions soon{.deadline = std::chrono::milliseconds(300)};
      expect_timeout([&] { all_reduce(tensor, group, soon).wait(); },
                     {"all_reduce as call 1", "rank 1"});
    }
    barrier(there);
  });
}

TEST(NcclDeadlines, OfAMessageNameTheRankThatDoesNotComeToIt) {
  run_ranks(2, [](const Group& shm) {
    const Group meet = shm.subgroup({0, 1}, "meet");
    const Group group = over_fake(meet, shm.options(), std::make_shared<HostStream::Seen>());
    at::Tensor tensor = numbers(4, 0);
    if (shm.rank() == 0) {
      const CallOptions soon{.deadline = std::chrono::milliseconds(300)};
      expect_timeout([&] { send(tensor, 1, group, soon).wait(); }, {"rank 1"});
    }
    barrier(shm);
  });
}

/// What the ends of a message call, in either order.
void exchange(const Group& group, int peer, int64_t count, bool sends_first) {
  const at::Tensor mine = numbers(count, group.rank());
  at::Tensor theirs = at::zeros({count});
  Work sent, received;
  if (sends_first) sent = send(mine, peer, group);
  received = recv(theirs, peer, group);
  if (!sends_first) sent = send(mine, peer, group);
  received.wait();
  EXPECT_TRUE(at::equal(theirs, numbers(count, peer)));
  sent.wait();
}

/// On one stream, or over one channel of descriptions, each of these would wait for the other.
TEST(NcclMessages, WaysOfOnePairDoNotWaitForEachOther) {
  for (const Bits bits : {Bits::kRun, Bits::kFast}) {
    run_both(2, bits, [](const Group&, const Group& by_nccl) {
      const int me = by_nccl.rank();
      for (int round = 0; round < 20; ++round) {
        const bool mixed = round % 2 == 1;  // one sends first, the other receives first
        exchange(by_nccl, 1 - me, 100 + round, !mixed || me == 0);
      }
    });
  }
}

TEST(NcclMessages, TheyDoNotWaitForCollectives) {
  run_both(3, Bits::kFast, [](const Group&, const Group& by_nccl) {
    const int me = by_nccl.rank(), next = (me + 1) % 3, before = (me + 2) % 3;
    at::Tensor sum = at::full({5000}, me + 1.0);
    at::Tensor theirs = at::zeros({5000});
    const at::Tensor mine = numbers(5000, me);
    Work summed = me == 0 ? all_reduce(sum, by_nccl) : Work();  // before its messages
    Work sent = send(mine, next, by_nccl);
    recv(theirs, before, by_nccl).wait();
    if (me != 0) summed = all_reduce(sum, by_nccl);  // after them
    summed.wait();
    sent.wait();
    EXPECT_TRUE(at::equal(theirs, numbers(5000, before)));
    EXPECT_TRUE(at::equal(sum, at::full({5000}, 6.0)));
  });
}

/// Each host looks at what it receives before it waits for what it sends, and gets there while its
/// own send, which the other waits for, is not launched.
TEST(NcclMessages, BothReadBeforeTheyWaitForWhatTheySend) {
  run_ranks(2, [](const Group& shm) {
    const Group group =
        over_fake(shm, shm.options(), std::make_shared<HostStream::Seen>(), Runs::kLater);
    constexpr int64_t kCount = 5000;  // a small call is asked for a while before it is waited for
    const int me = shm.rank();
    exchange(group, 1 - me, kCount, true);  // connects both ways
    const at::Tensor mine = numbers(kCount, me);
    at::Tensor theirs = at::zeros({kCount});
    Work sent;
    if (me == 0) sent = send(mine, 1, group);
    barrier(shm);
    if (me == 1) sent = send(mine, 0, group);
    barrier(shm);
    if (me == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    recv(theirs, 1 - me, group).wait();
    EXPECT_TRUE(at::equal(theirs, numbers(kCount, 1 - me)));
    sent.wait();
  });
}

TEST(NcclMessages, SeveralOfOneWayStayInOrder) {
  run_both(2, Bits::kFast, [](const Group&, const Group& by_nccl) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 8; ++i) {
      tensors.push_back(by_nccl.rank() == 0 ? numbers(64, i) : at::zeros({64}));
      works.push_back(by_nccl.rank() == 0 ? send(tensors[i], 1, by_nccl)
                                          : recv(tensors[i], 0, by_nccl));
    }
    for (int i = 7; i >= 0; --i) works[i].wait();
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(at::equal(tensors[i], numbers(64, i)));
  });
}

TEST(NcclMessages, EndsThatDifferAreNamedOnBoth) {
  run_both(3, Bits::kFast, [](const Group&, const Group& by_nccl) {
    at::Tensor tensor = numbers(by_nccl.rank() == 2 ? 5 : 4, 0);
    if (by_nccl.rank() == 0) return;
    try {
      (by_nccl.rank() == 1 ? send(tensor, 2, by_nccl) : recv(tensor, 1, by_nccl)).wait();
      ADD_FAILURE() << "the mismatch went unnoticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), base::Code::kMismatch);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 2 called recv(count 5"),
                                      HasSubstr("rank 1 called send(count 4")));
    }
  });
}

/// Either NCCL's connection or the letter with its id is what passes the deadline first.
TEST(NcclMessages, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  const auto body = [](const Group& shm) {
    GroupOptions options = shm.options();
    options.deadline = std::chrono::milliseconds(300);
    const Group meet = shm.subgroup({0, 1}, "meet");
    const Group group = over_fake(meet, options, std::make_shared<HostStream::Seen>());
    at::Tensor tensor = numbers(4, 0);
    if (shm.rank() == 0) {
      try {
        send(tensor, 1, group).wait();
        ADD_FAILURE() << "the deadline passed unnoticed";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), base::Code::kTimeout);
        EXPECT_THAT(error.what(),
                    AnyOf(HasSubstr("to connect it with rank 1"), HasSubstr("absent rank 1")));
      }
    }
    barrier(shm);
  };
  run_ranks(2, body, {.deadline = std::chrono::seconds(5)});
}

TEST(NcclMessages, FromAnyRankIsRefused) {
  run_both(2, Bits::kFast, [](const Group&, const Group& by_nccl) {
    at::Tensor tensor = numbers(4, 0);
    try {
      recv_any(tensor, by_nccl);
      ADD_FAILURE() << "it was not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), base::Code::kUnsupported);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("recv from any rank: engine nccl"),
                                      HasSubstr("give the rank to recv()")));
    }
  });
}

TEST(Nccl, SubgroupsConnectAnew) {
  run_both(4, Bits::kFast, [](const Group&, const Group& by_nccl) {
    const int me = by_nccl.rank();
    const Group half = by_nccl.subgroup({me % 2, me % 2 + 2}, "half");
    EXPECT_EQ(half.rank(), me / 2);
    at::Tensor tensor = at::full({3}, me, at::kInt);
    all_reduce(tensor, half).wait();
    EXPECT_TRUE(at::equal(tensor, at::full({3}, me % 2 * 2 + 2, at::kInt)));
  });
}

TEST(NcclLibrary, WhatIsMissingOrTooOldIsRefusedWithOneWayOut) {
  const auto absent = nccl::Library::load({.library = "libhanji_no_nccl.so.2"}).status();
  EXPECT_EQ(absent.code(), base::Code::kNotFound);
  EXPECT_THAT(absent.message(), HasSubstr("install it"));
  const auto other = nccl::Library::load({.library = "libm.so.6"}).status();
  EXPECT_EQ(other.code(), base::Code::kUnsupported);
  EXPECT_THAT(other.message(), HasSubstr("libm.so.6 has no ncclGetVersion"));
  order<void(int)>("fake_nccl_version")(20804);
  const auto old = nccl::Library::load({.library = HANJI_FAKE_NCCL}).status();
  order<void(int)>("fake_nccl_version")(22703);
  EXPECT_THAT(old.message(), HasSubstr("version 2.8.4"));
}

TEST(Nccl, ADeviceWithoutStreamsIsRefused) {
  run_ranks(1, [](const Group& shm) { EXPECT_THROW(nccl::make_group(shm, at::kCPU), Error); });
}

/// One rank per communicator is what a host with one GPU can run.
TEST(Nccl, EveryRoutineRunsOnAGpu) {
  const bool there = c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
                     c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount() > 0;
  if (!there) GTEST_SKIP() << "no GPU here";
  const c10::Device gpu(c10::kCUDA, 0);
  for (const Bits bits : {Bits::kRun, Bits::kFast}) {
    run_ranks(1, [&](const Group& shm) {
      GroupOptions options = shm.options();
      options.bits = bits;
      const Group group = nccl::make_group(shm, gpu, options);
      EXPECT_TRUE(at::equal(all_routines(group, gpu), all_routines(shm, at::kCPU)));
      at::Tensor large = at::ones({1 << 24}, at::TensorOptions(at::kFloat).device(gpu));
      for (int i = 0; i < 10; ++i) {  // each call after the product before it, and before the next
        large.mul_(2);
        all_reduce(large, group, {.op = ReduceOp::kAvg}).wait();
      }
      EXPECT_TRUE(at::equal(large.cpu(), at::full({1 << 24}, 1024.0F)));
    });
  }
}

}  // namespace
}  // namespace hanji::comm
