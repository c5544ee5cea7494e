#include "hanji/cost/simulate.h"

#include <gmock/gmock.h>

#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/catalogue.h"
#include "hanji/schedule/pipeline.h"
#include "hanji/schedule/recursive.h"
#include "hanji/schedule/ring.h"

namespace hanji::cost {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Network kNetwork = {.latency_seconds = 0.5, .bytes_per_second = 100};

TEST(Simulate, OneMessageTakesItsLatencyAndItsBytes) {
  const Timeline timeline =
      simulate(schedule::broadcast_one_by_one(2, 25, 0), 4, kNetwork).or_throw();
  EXPECT_THAT(timeline.transfers, ElementsAre(Transfer{0, 1, 100, 0, 1.5}));
  EXPECT_DOUBLE_EQ(timeline.terms.latency, 0.5);
  EXPECT_DOUBLE_EQ(timeline.terms.bandwidth, 1);
  EXPECT_EQ(timeline.terms.rounds, 1);
}

TEST(Simulate, MessagesOfOnePortShareIt) {
  const auto all = simulate(schedule::broadcast_all_at_once(5, 100, 2), 1, kNetwork).or_throw();
  EXPECT_NEAR(all.seconds(), 0.5 + 4, 1e-9);  // their latencies are waited for at once
  const auto each = simulate(schedule::broadcast_one_by_one(5, 100, 2), 1, kNetwork).or_throw();
  EXPECT_NEAR(each.seconds(), 4 * (0.5 + 1), 1e-9);
}

TEST(Simulate, BytesThatTakeNoTimeBesideALongLatencyArrive) {
  for (const double latency : {1.0, 1e6, 1e300}) {
    for (const int64_t count : {1, 3, 7}) {
      const auto list = schedule::broadcast_all_at_once(5, count, 2);
      const Network network{.latency_seconds = latency, .bytes_per_second = 1e9};
      EXPECT_DOUBLE_EQ(simulate(list, 1, network).or_throw().seconds(),
                       latency + 4e-9 * static_cast<double>(count));
    }
  }
}

TEST(Simulate, WhatASlowReceiverLeavesOthersTake) {
  // Ranks 1 and 2 send to 0 at once, and 2 sends to 3 as well: 2's port has room for both, so the
  // port of 0 is shared by halves, and 2 -> 3 gets the other half of 2's.
  schedule::StepList list = schedule::broadcast_one_by_one(4, 100, 0);
  for (auto& steps : list.per_rank) steps.clear();
  const auto add = [&](int rank, schedule::StepKind kind, int peer, int64_t slot) {
    schedule::Step step;
    step.kind = kind;
    step.peer = peer;
    step.count = 100;
    const bool sends = kind == schedule::StepKind::kSend;
    (sends ? step.from
           : step.to) = {{rank, sends ? schedule::Place::kInput : schedule::Place::kSlot, 0, slot}};
    step.joined = !list.per_rank[rank].empty();
    list.per_rank[rank].push_back(step);
  };
  list.slot_elements = 200;
  add(0, schedule::StepKind::kRecv, 1, 0);
  add(0, schedule::StepKind::kRecv, 2, 100);
  add(1, schedule::StepKind::kSend, 0, 0);
  add(2, schedule::StepKind::kSend, 0, 0);
  add(2, schedule::StepKind::kSend, 3, 0);
  add(3, schedule::StepKind::kRecv, 2, 0);
  const Timeline timeline = simulate(list, 1, kNetwork).or_throw();
  for (const Transfer& one : timeline.transfers) EXPECT_NEAR(one.end, 0.5 + 2, 1e-9);
}

TEST(Simulate, ReductionsTakeTheirTime) {
  Network network = kNetwork;
  network.reduce_bytes_per_second = 200;
  const auto timeline =
      simulate(schedule::all_reduce_recursive_doubling(4, 100), 1, network).or_throw();
  EXPECT_NEAR(timeline.seconds(), 2 * (0.5 + 1 + 0.5), 1e-9);
  EXPECT_NEAR(timeline.terms.latency, 1, 1e-9);
  EXPECT_NEAR(timeline.terms.bandwidth, 2, 1e-9);
  EXPECT_NEAR(timeline.terms.reduction, 1, 1e-9);
  EXPECT_EQ(timeline.terms.rounds, 2);
}

TEST(Simulate, EveryAlgorithmEndsAndNoPortCarriesMoreThanItCan) {
  for (const schedule::Algorithm& algorithm : schedule::message_algorithms()) {
    for (const int ranks : {1, 2, 3, 5, 8, 13}) {
      const auto list = algorithm.make(ranks, 1000, {0, 3, 1});
      const auto timeline = simulate(list, 4, kNetwork);
      ASSERT_TRUE(timeline.ok()) << algorithm.name << timeline.status().message();
      std::vector<int64_t> sent(ranks), received(ranks);
      for (const Transfer& one : timeline->transfers) {
        sent[one.from] += one.bytes;
        received[one.to] += one.bytes;
        EXPECT_GE(one.end - one.start, 0.5 + static_cast<double>(one.bytes) / 100 - 1e-9);
      }
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(sent[rank], 4 * schedule::traffic_of(list, rank).wire);
        EXPECT_LE(std::max(sent[rank], received[rank]), timeline->seconds() * 100 + 1e-6);
      }
    }
  }
}

// The lists of an algorithm that is kept as one rank's steps: whole, and its longest path.
void expect_same_time(const schedule::Algorithm& algorithm, int ranks, int64_t count,
                      schedule::ListShape shape) {
  const Network network = {
      .latency_seconds = 0.5, .bytes_per_second = 100, .reduce_bytes_per_second = 300};
  const schedule::StepList list = algorithm.make(ranks, count, shape);
  const Timeline whole = simulate(list, 1, network).or_throw();
  shape.kept = {.rank = 0, .longest_path = true};
  const Timeline path = simulate(algorithm.make(ranks, count, shape), 1, network).or_throw();
  const double few = 1e-9 * whole.seconds();
  EXPECT_NEAR(path.seconds(), whole.seconds(), few)
      << name_of(algorithm.routine) << " " << algorithm.name << " of " << ranks << " ranks, "
      << count << " elements, root " << shape.root << ", " << shape.ranks_per_host << " per host";
}

TEST(Simulate, TheLongestPathOfASymmetricListTakesAsLongAsTheWholeList) {
  for (const schedule::Algorithm& algorithm : schedule::message_algorithms()) {
    if (!algorithm.is_symmetric) continue;
    for (int ranks = 1; ranks <= 33; ++ranks) {
      for (const int root : {0, ranks / 2, ranks - 1}) {
        for (const int per_host : {1, 2, 4, ranks}) {
          if (ranks % per_host != 0) continue;
          // Slices that are equal: a whole number of those of 64 elements for any power of two too.
          expect_same_time(algorithm, ranks, 64 * 32 * ranks, {root, 5, per_host, {}});
          if (!algorithm.is_hierarchical) break;
        }
        if (!has_root(algorithm.routine)) break;
      }
    }
  }
}

TEST(Simulate, TheLongestPathTakesEachSliceAsTheLargest) {
  // Of unequal slices a round of the path may be longer by what the largest has more than the
  // smallest: nothing where the slices are of one element or none.
  for (const schedule::Algorithm& algorithm : schedule::message_algorithms()) {
    if (!algorithm.is_symmetric) continue;
    for (const int ranks : {2, 3, 5, 8, 12, 23}) {
      for (const int64_t count : {1, 2, 7, 1000, 6411}) {
        schedule::ListShape shape{ranks / 3, 5, ranks % 2 == 0 ? 2 : 1, {}};
        const Timeline whole =
            simulate(algorithm.make(ranks, count, shape), 1, kNetwork).or_throw();
        shape.kept = {.rank = 0, .longest_path = true};
        const Timeline path = simulate(algorithm.make(ranks, count, shape), 1, kNetwork).or_throw();
        const double rounds = path.terms.rounds;
        const double largest = 64 + static_cast<double>(count) / ranks;  // of a slice
        EXPECT_GE(path.seconds(), whole.seconds() * (1 - 1e-9)) << algorithm.name;
        EXPECT_LE(path.seconds(), whole.seconds() + rounds * largest / 100)
            << algorithm.name << " of " << ranks << " ranks, " << count << " elements";
      }
    }
  }
}

TEST(Simulate, RefusesListsThatShareMemoryAndThoseThatNeverEnd) {
  EXPECT_THAT(simulate(schedule::all_reduce_direct(2, 10), 1, kNetwork).status().message(),
              HasSubstr("share memory"));
  EXPECT_EQ(simulate(schedule::barrier(2), 1, kNetwork).status().code(), Code::kUnsupported);
  schedule::StepList list = schedule::all_gather_ring(3, 8);
  for (auto& steps : list.per_rank) {
    for (auto& step : steps) step.joined = false;
  }
  EXPECT_THAT(simulate(list, 1, kNetwork).status().message(), HasSubstr("waits for ever"));
  EXPECT_FALSE(simulate(schedule::all_gather_ring(3, 8), 1, {.bytes_per_second = 0}).ok());
}

}  // namespace
}  // namespace hanji::cost
