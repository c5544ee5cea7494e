#include "hanji/cost/select.h"

#include <gmock/gmock.h>

#include <thread>

#include "hanji/cost/price.h"
#include "hanji/schedule/check.h"
#include "hanji/schedule/staging.h"

namespace hanji::cost {
namespace {

using schedule::ReduceOp;
using schedule::Routine;
using testing::HasSubstr;

const Selection& select_floats(Chooser& chooser, Routine routine, int ranks, int64_t count) {
  return chooser.select(routine, ReduceOp::kSum, DType::kFloat32, ranks, count);
}

TEST(Chooser, SmallMessagesTakeOneSyncLargeOnesTheLeastTraffic) {
  Chooser chooser{Rates{}};
  for (const Routine routine : {Routine::kAllReduce, Routine::kBroadcast, Routine::kAllGather,
                                Routine::kReduceScatter, Routine::kReduce, Routine::kGather,
                                Routine::kScatter, Routine::kAllToAll, Routine::kSend}) {
    EXPECT_EQ(select_floats(chooser, routine, 2, 8).in_heap->algorithm, "flat");
    EXPECT_EQ(select_floats(chooser, routine, 2, 16 << 20).in_heap->algorithm, "direct");
  }
}

TEST(Chooser, WhatWasNamedIsTakenAtAnyPrice) {
  Chooser chooser(Rates{}, {{Routine::kAllReduce, "staged"}, {Routine::kBroadcast, "flat"}});
  const auto& large = select_floats(chooser, Routine::kAllReduce, 2, 16 << 20);
  EXPECT_EQ(large.in_heap->algorithm, "staged");
  EXPECT_EQ(large.in_heap, large.if_private);
  EXPECT_THAT(large.why, HasSubstr("staged was named"));
  EXPECT_EQ(select_floats(chooser, Routine::kAllGather, 2, 16 << 20).in_heap->algorithm, "direct");
  EXPECT_EQ(select_floats(chooser, Routine::kBroadcast, 2, 8).in_heap->algorithm, "flat");
  EXPECT_THROW(select_floats(chooser, Routine::kBroadcast, 2, 16 << 20), Error);
}

TEST(Chooser, ASlowSyncMovesTheChoice) {
  Rates rates;
  rates.sync_seconds = 1;
  Chooser patient(rates);
  EXPECT_EQ(select_floats(patient, Routine::kAllReduce, 2, 100000).in_heap->algorithm, "flat");
  rates.sync_seconds = 1e-12;
  Chooser hasty(rates);
  EXPECT_EQ(select_floats(hasty, Routine::kAllReduce, 2, 100000).in_heap->algorithm, "direct");
}

TEST(Chooser, PrivateTensorsGetAListThatTouchesNoPeer) {
  Chooser chooser{Rates{}};
  for (int routine = 0; routine < schedule::kNumRoutines; ++routine) {
    if (static_cast<Routine>(routine) == Routine::kTreeReduce) continue;
    for (const int ranks : {1, 2, 3, 16}) {
      if (static_cast<Routine>(routine) == Routine::kSend && ranks != 2) continue;
      for (const int64_t count : {0, 1, 1009, 1 << 22}) {
        const auto& selection = select_floats(chooser, static_cast<Routine>(routine), ranks, count);
        EXPECT_FALSE(touches_peer_tensors(*selection.if_private));
        EXPECT_LE(selection.if_private->slot_elements * 4, schedule::kSlotBytes);
        EXPECT_LE(selection.in_heap->slot_elements * 4, schedule::kSlotBytes);
        if (selection.in_heap == selection.if_private) continue;
        for (const auto* list : {selection.in_heap.get(), selection.if_private.get()}) {
          for (const auto& steps : list->per_rank) {
            EXPECT_EQ(steps.front().kind, schedule::StepKind::kSync);
          }
        }
      }
    }
  }
}

TEST(Chooser, SaysWhyWithTheRunnerUpAndBothPrices) {
  Chooser chooser{Rates{}};
  const Selection& selection = select_floats(chooser, Routine::kAllReduce, 2, 1 << 24);
  EXPECT_THAT(selection.why, HasSubstr("all_reduce of 67.1 MB per rank over 2 ranks: direct at "));
  EXPECT_THAT(selection.why, HasSubstr(" beats staged at "));
  EXPECT_DOUBLE_EQ(selection.predicted_seconds,
                   price_seconds(*selection.in_heap, 4, chooser.rates()));
  EXPECT_THAT(select_floats(chooser, Routine::kBarrier, 2, 0).why, HasSubstr("only algorithm"));
}

TEST(Chooser, KeepsWhatItChose) {
  Chooser chooser{Rates{}};
  const Selection& first = select_floats(chooser, Routine::kAllReduce, 2, 1000);
  const std::weak_ptr<const schedule::StepList> list = first.in_heap;
  for (size_t i = 0; i < Chooser::kKept; ++i) select_floats(chooser, Routine::kBarrier, 2, i);
  EXPECT_EQ(&select_floats(chooser, Routine::kAllReduce, 2, 1000), &first);
  for (size_t i = 0; i < 4 * Chooser::kKept; ++i) {
    select_floats(chooser, Routine::kBarrier, 1, static_cast<int64_t>(i));
  }
  EXPECT_TRUE(list.expired());  // bounded: what was not asked for again is gone
}

TEST(Chooser, CallsThatDifferGetTheirOwnLists) {
  Chooser chooser{Rates{}};
  const auto select = [&](DType dtype, int ranks, int64_t count, int root) {
    return chooser.select(Routine::kBroadcast, ReduceOp::kSum, dtype, ranks, count, root).in_heap;
  };
  const auto base = select(DType::kFloat32, 3, 8, 0);
  EXPECT_EQ(select(DType::kInt32, 3, 8, 0), base);
  EXPECT_NE(select(DType::kFloat64, 3, 8, 0), base);
  EXPECT_EQ(select(DType::kFloat32, 2, 8, 0)->ranks, 2);
  EXPECT_EQ(select(DType::kFloat32, 3, 9, 0)->count, 9);
  EXPECT_EQ(select(DType::kFloat32, 3, 8, 2)->root, 2);
}

TEST(Chooser, EveryListHasTheRootThatWasAsked) {
  for (const Routine routine :
       {Routine::kBroadcast, Routine::kReduce, Routine::kGather, Routine::kScatter}) {
    for (const char* algorithm : {"flat", "direct", "staged"}) {
      Chooser chooser(Rates{}, {{routine, algorithm}});
      const Query query{.routine = routine, .element_bytes = 4, .ranks = 3, .count = 8, .root = 2};
      EXPECT_EQ(chooser.select(query).in_heap->root, 2) << algorithm;
    }
  }
}

TEST(Chooser, UnevenSharesGetListsOfTheirOwn) {
  Chooser chooser{Rates{}};
  const auto select = [&](std::vector<int64_t> counts, Routine routine, int64_t scale) {
    int64_t sum = 0;
    for (int64_t& count : counts) sum += count *= scale;
    return chooser.select(
        {.routine = routine, .element_bytes = 4, .ranks = 2, .count = sum, .counts = counts});
  };
  for (const Routine routine : {Routine::kAllGather, Routine::kReduceScatter, Routine::kGather,
                                Routine::kScatter, Routine::kAllToAll}) {
    const bool pairs = routine == Routine::kAllToAll;
    const std::vector<int64_t> counts =
        pairs ? std::vector<int64_t>{9, 10, 10, 9} : std::vector<int64_t>{9, 10};
    const std::vector<int64_t> others =
        pairs ? std::vector<int64_t>{10, 9, 9, 10} : std::vector<int64_t>{10, 9};
    const Selection small = select(counts, routine, 1);
    EXPECT_EQ(small.in_heap->algorithm, "flat");
    EXPECT_EQ(small.in_heap->counts, counts);
    EXPECT_EQ(select(counts, routine, 1).in_heap, small.in_heap);
    EXPECT_NE(select(others, routine, 1).in_heap, small.in_heap);
    const Selection large = select(counts, routine, 1 << 20);
    EXPECT_EQ(large.in_heap->algorithm, "direct");
    EXPECT_EQ(large.if_private->algorithm, "staged");
    EXPECT_THAT(large.why, HasSubstr(" in uneven shares over 2 ranks: direct"));
  }
}

TEST(Chooser, AnAllToAllInPlaceSwaps) {
  Chooser chooser{Rates{}};
  const auto& selection = chooser.select({.routine = Routine::kAllToAll,
                                          .element_bytes = 4,
                                          .ranks = 2,
                                          .count = 16 << 20,
                                          .in_place = true});
  EXPECT_EQ(selection.in_heap->algorithm, "swap");
  EXPECT_TRUE(selection.in_heap->in_place && selection.if_private->in_place);
  EXPECT_FALSE(select_floats(chooser, Routine::kAllToAll, 2, 16 << 20).in_heap->in_place);
}

/// Which of them shows only when the ranks have met.
TEST(Chooser, PrivateTensorsTakeTheCheaperOfFlatAndStagedBehindAMeeting) {
  Rates rates;
  rates.sync_seconds = 1;  // staged lists meet once per chunk, and then once more
  Chooser patient(rates, {{Routine::kAllReduce, "direct"}});
  const Selection& flat = select_floats(patient, Routine::kAllReduce, 2, 100000);
  EXPECT_EQ(flat.if_private->algorithm, "flat");
  EXPECT_EQ(schedule::check(*flat.if_private).message(), "");
  Chooser hasty(Rates{}, {{Routine::kAllReduce, "direct"}});
  const Selection& large = select_floats(hasty, Routine::kAllReduce, 2, 64 << 20);
  EXPECT_EQ(large.if_private->algorithm, "staged") << "no slot has room for all of it";
}

TEST(Chooser, RefusesATreeReduceAndARootOutside) {
  Chooser chooser{Rates{}};
  EXPECT_THROW(select_floats(chooser, Routine::kTreeReduce, 2, 8), Error);
  EXPECT_THROW(select_floats(chooser, Routine::kAllReduce, 0, 8), Error);
  EXPECT_THROW(chooser.select(Routine::kBroadcast, ReduceOp::kSum, DType::kFloat32, 2, 8, 2),
               Error);
}

TEST(Chooser, RanksOfOneProcessMayShareIt) {
  Chooser chooser{Rates{}};
  std::vector<const Selection*> seen(4);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back(
          [&, i] { seen[i] = &select_floats(chooser, Routine::kAllReduce, 4, 4096); });
    }
  }
  for (const Selection* selection : seen) EXPECT_EQ(selection, seen[0]);
}

}  // namespace
}  // namespace hanji::cost
