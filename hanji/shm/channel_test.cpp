// Messages between two ranks: their bytes, their order, and what is said when the ends disagree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "hanji/schedule/barrier.h"
#include "hanji/schedule/send.h"
#include "hanji/shm/call_site.h"
#include "hanji/test/run_group.h"

namespace hanji::shm {
namespace {

using namespace std::chrono_literals;
using schedule::StepList;
using test::call_of;
using test::run_threads;
using test::share;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kSender = 2;  // of the segment's ranks
constexpr int kReceiver = 0;

/// One end of the channel from kSender to kReceiver.
struct End {
  std::shared_ptr<Segment> segment;
  int rank;
  Heap& heap;
  Engine& engine;

  bool sends() const { return rank == kSender; }
  float* allocate(int64_t count) {
    return reinterpret_cast<float*>(
        heap.allocate(static_cast<size_t>(count) * 4, "test").or_throw().data);
  }
  Call call(const std::shared_ptr<const StepList>& list, float* data) const {
    Call call = call_of(list);
    call.input = sends() ? data : nullptr;
    call.output = sends() ? nullptr : data;
    call.call_site = segment->call_sites().intern(rank, sends() ? "out.cpp:1" : "in.cpp:2");
    return call;
  }
  Status run(const Call& call) {
    HANJI_ASSIGN_OR_RETURN(const uint64_t ticket, engine.submit(call));
    return engine.wait(ticket);
  }
};

void run_ends(const std::function<void(End&)>& body, const EngineOptions& options = {}) {
  const auto segment = test::make_segment(3);
  run_threads(2, [&](int which) {
    const int rank = which == 0 ? kSender : kReceiver;
    Heap heap(segment, rank);
    const auto engine =
        Engine::create_channel(segment, kSender, kReceiver, rank, options).or_throw();
    End end{segment, rank, heap, *engine};
    body(end);
  });
}

TEST(Channel, CarriesMessagesInOrderInEveryWay) {
  run_ends([](End& end) {
    for (const int64_t count : {0, 1, 2, 7, 1009, 30011}) {
      std::vector<StepList> lists = {schedule::send_direct(count),
                                     schedule::send_staged(count, 1000)};
      if (count < 2000) lists.push_back(schedule::send_flat(count));
      float* in_heap = end.allocate(count + 1);
      std::vector<float> outside(count + 1);
      float round = 0;
      for (const StepList& list : lists) {
        for (float* data : {in_heap, outside.data()}) {
          if (data == outside.data() && touches_peer_tensors(list)) continue;
          ++round;
          if (end.sends()) std::iota(data, data + count, round);
          const Status status = end.run(end.call(share(list), data));
          ASSERT_TRUE(status.ok()) << status.message();
          for (int64_t i = 0; i < count; ++i) ASSERT_EQ(data[i], round + static_cast<float>(i));
        }
      }
    }
  });
}

TEST(Channel, MessagesInTheHeapArriveWithoutTheirSender) {
  constexpr int kMessages = 7;
  std::atomic<int> taken = 0;
  EngineOptions options;
  options.deadline = 2s;
  run_ends(
      [&](End& end) {
        const auto list = share(schedule::send_direct(1000));
        std::vector<uint64_t> tickets;
        for (int i = 0; i < kMessages; ++i) {
          float* data = end.allocate(1000);
          if (end.sends()) std::fill_n(data, 1000, static_cast<float>(i));
          tickets.push_back(end.engine.submit(end.call(list, data)).or_throw());
          if (end.sends()) continue;
          const Status status = end.engine.wait(tickets.back());
          EXPECT_TRUE(status.ok()) << status.message();
          EXPECT_EQ(data[999], static_cast<float>(i));
          ++taken;
        }
        if (!end.sends()) return;
        const auto late = std::chrono::steady_clock::now() + 5s;
        while (taken < kMessages && std::chrono::steady_clock::now() < late) {
          std::this_thread::sleep_for(1ms);
        }
        ASSERT_EQ(taken, kMessages);
        for (const uint64_t ticket : tickets) EXPECT_TRUE(end.engine.wait(ticket).ok());
      },
      options);
}

TEST(Channel, ASenderAheadOfItsLinesGoesOnWhenTheyAreRead) {
  run_ends([](End& end) {
    const auto list = share(schedule::send_direct(50));
    std::vector<uint64_t> tickets;
    std::vector<float*> data;
    for (int i = 0; i < 40; ++i) {
      data.push_back(end.allocate(50));
      if (end.sends()) std::fill_n(data[i], 50, static_cast<float>(i));
      tickets.push_back(end.engine.submit(end.call(list, data[i])).or_throw());
      if (i == 20 && !end.sends()) std::this_thread::sleep_for(20ms);
    }
    for (int i = 0; i < 40; ++i) {
      ASSERT_TRUE(end.engine.wait(tickets[i]).ok());
      EXPECT_EQ(data[i][49], static_cast<float>(i));
    }
  });
}

TEST(Channel, GoesOnWhileAGroupIsWaitedFor) {
  const auto segment = test::make_segment(2);
  run_threads(2, [&](int rank) {
    const auto group = Engine::create(segment, 0, {0, 1}, rank).or_throw();
    const auto channel = Engine::create_channel(segment, 0, 1, rank).or_throw();
    const auto barrier = call_of(share(schedule::barrier(2)));
    std::vector<float> data(100, rank == 0 ? 5.0f : 0.0f);
    Call call = call_of(share(schedule::send_staged(100, 30)));
    call.input = rank == 0 ? data.data() : nullptr;
    call.output = rank == 0 ? nullptr : data.data();
    // The sender's message is under way when it waits in the group; the receiver meets the group
    // only when it has the message.
    if (rank == 0) {
      const uint64_t sent = channel->submit(call).or_throw();
      const uint64_t met = group->submit(barrier).or_throw();
      EXPECT_TRUE(group->wait(met, {channel.get()}).ok());
      EXPECT_TRUE(channel->wait(sent).ok());
    } else {
      EXPECT_TRUE(channel->wait(channel->submit(call).or_throw()).ok());
      EXPECT_EQ(data[99], 5.0f);
      EXPECT_TRUE(group->wait(group->submit(barrier).or_throw()).ok());
    }
  });
}

struct Disagreement {
  const char* name;
  std::function<void(Call&)> change;  ///< Of the receiver's call.
  const char* says;
};

class Disagreements : public testing::TestWithParam<Disagreement> {};

TEST_P(Disagreements, AreNamedOnBothEndsBeforeAByteIsUsed) {
  run_ends([](End& end) {
    float* data = end.allocate(200);
    std::fill_n(data, 200, static_cast<float>(end.rank));
    Call call = end.call(share(schedule::send_direct(100)), data);
    call.tag = 4;
    if (!end.sends()) GetParam().change(call);
    const Status status = end.run(call);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("message 1 from rank 2 to rank 0: rank 2 calls send(float32, 100 "
                                "elements, tag 4) at out.cpp:1; rank 0 calls recv("),
                      HasSubstr("at in.cpp:2"), HasSubstr(GetParam().says)));
    for (int i = 0; i < 200; ++i) ASSERT_EQ(data[i], static_cast<float>(end.rank));
    EXPECT_EQ(end.run(call).code(), Code::kMismatch) << "the channel stays poisoned";
  });
}

INSTANTIATE_TEST_SUITE_P(
    InEveryField, Disagreements,
    testing::Values(
        Disagreement{"count",
                     [](Call& call) {
                       call.steps = share(schedule::send_direct(99));
                       call.count = 99;
                     },
                     "the count is 99 there and 100 here"},
        Disagreement{"dtype", [](Call& call) { call.dtype = DType::kInt32; },
                     "the dtype is int32 there and float32 here"},
        Disagreement{"tag", [](Call& call) { call.tag = 5; }, "the tag is 5 there and 4 here"},
        Disagreement{"list", [](Call& call) { call.steps = share(schedule::send_flat(100)); },
                     "the step lists differ"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Channel, AMissingReceiverIsNamedAtTheDeadline) {
  EngineOptions options;
  options.deadline = 100ms;
  run_ends(
      [](End& end) {
        if (!end.sends()) return;
        const Status status = end.run(end.call(share(schedule::send_flat(5)), end.allocate(5)));
        EXPECT_EQ(status.code(), Code::kTimeout);
        EXPECT_THAT(status.message(), AllOf(HasSubstr("message 1 from rank 2 to rank 0"),
                                            HasSubstr("absent rank 0: it made no call")));
      },
      options);
}

TEST(Channel, IsRefusedToOneselfAndToStrangers) {
  const auto segment = test::make_segment(3);
  EXPECT_FALSE(Engine::create_channel(segment, 1, 1, 1).ok());
  EXPECT_FALSE(Engine::create_channel(segment, 0, 3, 0).ok());
  EXPECT_FALSE(Engine::create_channel(segment, 0, 1, 2).ok());
}

}  // namespace
}  // namespace hanji::shm
