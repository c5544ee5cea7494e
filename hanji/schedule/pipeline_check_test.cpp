#include "hanji/schedule/pipeline_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "hanji/schedule/pipeline_csv.h"
#include "hanji/schedule/pipeline_timeline.h"

namespace hanji::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Pipe = PipelineKind;

PipelineSchedule of(Pipe kind, int ranks, int64_t micro_batches, int stages = 1) {
  return pipeline_schedule(kind, {ranks, micro_batches, stages}).or_throw();
}

size_t index_of(const ActionList& actions, std::string_view code) {
  return static_cast<size_t>(
      std::ranges::find_if(actions, [&](const Action& a) { return to_code(a) == code; }) -
      actions.begin());
}

/// What the checker says of a schedule after two actions of a rank have changed places.
std::string swapped(PipelineSchedule schedule, int rank, std::string_view a, std::string_view b) {
  ActionList& actions = schedule.ranks[rank];
  std::swap(actions.at(index_of(actions, a)), actions.at(index_of(actions, b)));
  return std::string(check(schedule, 1).message());
}

std::string without(PipelineSchedule schedule, int rank, std::string_view code) {
  ActionList& actions = schedule.ranks[rank];
  actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(index_of(actions, code)));
  return std::string(check(schedule, 1).message());
}

/// After an action has moved in front of another.
std::string moved(PipelineSchedule schedule, int rank, std::string_view code,
                  std::string_view before) {
  ActionList& actions = schedule.ranks[rank];
  const Action action = actions.at(index_of(actions, code));
  std::erase(actions, action);
  actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(index_of(actions, before)), action);
  return std::string(check(schedule, 1).message());
}

TEST(PipelineCheck, ABackwardBeforeItsForwardIsNamed) {
  EXPECT_THAT(swapped(of(Pipe::k1F1B, 2, 4), 1, "1F0", "1B0"),
              AllOf(StartsWith("rank 1: action 1, backward of stage 1, micro-batch 0"),
                    HasSubstr("its forward has not run")));
}

TEST(PipelineCheck, AWeightPassBeforeItsInputPassIsNamed) {
  EXPECT_THAT(swapped(of(Pipe::kZbH1, 4, 4), 2, "2I1", "2W1"),
              AllOf(HasSubstr("backward_weight of stage 2, micro-batch 1"),
                    HasSubstr("its backward_input has not run")));
}

TEST(PipelineCheck, AMissingWeightPassIsNamed) {
  EXPECT_EQ(without(of(Pipe::kZbH1, 4, 4), 2, "2W3"),
            "rank 2 lacks backward_weight of stage 2, micro-batch 3");
}

TEST(PipelineCheck, ASendBeforeItsComputationIsNamed) {
  EXPECT_THAT(
      swapped(of(Pipe::kGpipe, 4, 4), 1, "1F2", "1SEND_F2"),
      HasSubstr("send of stage 1, micro-batch 2, to stage 2, is out of order: what it sends "
                "has not been computed"));
}

TEST(PipelineCheck, ASendThatIsLeftOutIsFoundAtTheReceiveThatWouldMeetAnother) {
  EXPECT_THAT(
      without(of(Pipe::k1F1B, 4, 4), 0, "0SEND_F1"),
      AllOf(StartsWith("rank 1, action"),
            HasSubstr("receive of stage 1, micro-batch 1, from stage 0: it would meet rank 0"),
            HasSubstr("send of stage 0, micro-batch 2")));
  EXPECT_THAT(
      without(of(Pipe::k1F1B, 4, 4), 0, "0SEND_F3"),
      HasSubstr("receive of stage 1, micro-batch 3, from stage 0: rank 0 does not send it"));
}

TEST(PipelineCheck, AReceiveThatIsLeftOutIsFoundAtWhatNeedsIt) {
  EXPECT_THAT(
      without(of(Pipe::k1F1B, 4, 4), 1, "1RECV_F1"),
      AllOf(StartsWith("rank 1, action"), HasSubstr("forward of stage 1, micro-batch 1"),
            HasSubstr("the receive of stage 1, micro-batch 1, from stage 0 is not before it")));
}

TEST(PipelineCheck, ReceivesInAnotherOrderThanTheirSendsAreNamed) {
  // Both before the first forward, so that what each forward needs is there.
  PipelineSchedule schedule = of(Pipe::kGpipe, 2, 2);
  ActionList& actions = schedule.ranks[1];
  const Action second = actions.at(index_of(actions, "1RECV_F1"));
  std::erase(actions, second);
  actions.insert(actions.begin(), second);
  EXPECT_THAT(
      std::string(check(schedule, 1).message()),
      HasSubstr("rank 1, action 0, receive of stage 1, micro-batch 1, from stage 0: it would "
                "meet rank 0, action 1, send of stage 0, micro-batch 0"));
}

TEST(PipelineCheck, AReceiveThatDelaysAnActionIsNamed) {
  EXPECT_THAT(
      moved(of(Pipe::k1F1B, 4, 4), 0, "0RECV_B0", "0F3"),
      HasSubstr("rank 0, action 6, receive of stage 0, micro-batch 0, from stage 1: it delays "
                "action 7, forward of stage 0, micro-batch 3"));
}

TEST(PipelineCheck, AnActionOnAnotherRankIsNamed) {
  PipelineSchedule schedule = of(Pipe::kGpipe, 2, 2);
  schedule.rank_of_stage = {1, 0};
  EXPECT_THAT(
      std::string(check(schedule, 1).message()),
      HasSubstr("rank 0, action 0, forward of stage 0, micro-batch 0: the stage is not this"));
}

TEST(PipelineCheck, AStageOnTheSameRankIsComputedFirst) {
  const auto v = of(Pipe::kZbV, 2, 4, 2);  // rank 1 has stages 1 and 2
  PipelineSchedule schedule = v;
  ActionList& actions = schedule.ranks[1];
  std::swap(actions.at(index_of(actions, "1F0")), actions.at(index_of(actions, "2F0")));
  EXPECT_THAT(
      std::string(check(schedule, 2).message()),
      HasSubstr("forward of stage 2, micro-batch 0: the forward of stage 1, micro-batch 0 is "
                "not before it"));
}

TEST(PipelineCheck, ADeadlockNamesTheActionOfEachRank) {
  // Each rank waits for what the other sends later.
  const auto crossed = pipeline_from_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n").or_throw();
  EXPECT_EQ(
      check(crossed, 1).message(),
      "deadlock: rank 0 at action 2, receive of stage 0, micro-batch 0, from stage 1; rank 1 at "
      "action 1, receive of stage 1, micro-batch 1, from stage 0");
  EXPECT_THAT(std::string(check(of(Pipe::kLoopedBfs, 4, 16, 2), 3).message()),
              StartsWith("deadlock: rank 0 at action"));
}

TEST(PipelineCheck, OrdersThatCostMoreThanTheirFormulaAreFound) {
  // GPipe's order under the name of 1F1B keeps too much.
  PipelineSchedule gpipe = of(Pipe::kGpipe, 4, 8);
  gpipe.kind = Pipe::k1F1B;
  EXPECT_EQ(check(gpipe, 1).message(), "rank 0 keeps 8 activations at once; a 1f1b keeps 4");
  PipelineSchedule naive = of(Pipe::kNaive, 4, 2);
  naive.kind = Pipe::kUser;
  EXPECT_TRUE(check(naive, 1).ok());
}

TEST(PipelineCheck, WhatItAcceptsEndsInAnyTimes) {
  std::mt19937 random(7);
  const auto below = [&random](size_t limit) { return static_cast<int>(random() % limit); };
  int accepted = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const Pipe kind = pipeline_kinds()[static_cast<size_t>(trial) % pipeline_kinds().size()];
    PipelineSchedule schedule = of(kind, 3, 6, stages_per_rank(kind, 2));
    schedule.kind = Pipe::kUser;  // without formulas
    ActionList& actions = schedule.ranks[below(3)];
    const int from = below(actions.size()), to = below(actions.size());
    std::swap(actions[from], actions[to]);
    if (below(4) == 0) actions[from].peer += 1;
    if (below(4) == 0) actions[to].stage += 1;
    PipelineTimes times;
    times.buffered_messages = 1 + below(4);
    for (int i = 0; i < schedule.num_stages(); ++i) {
      times.stages.push_back({1.0 * below(5), 1.0 * below(5), 1.0 * below(5)});
    }
    if (!check(schedule, times.buffered_messages).ok()) continue;
    ++accepted;
    EXPECT_TRUE(simulate(schedule, times).ok()) << trial;
  }
  EXPECT_GT(accepted, 10);
}

TEST(PipelineCheck, EveryActionLeftOutOrRepeatedIsFound) {
  for (const Pipe kind : pipeline_kinds()) {
    const auto schedule = of(kind, 2, 4, stages_per_rank(kind, 2));
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
        const auto at = static_cast<std::ptrdiff_t>(i);
        const Action action = schedule.ranks[rank][i];
        PipelineSchedule less = schedule;
        less.ranks[rank].erase(less.ranks[rank].begin() + at);
        EXPECT_FALSE(check(less, 8).ok()) << name_of(kind) << " without " << to_string(action);
        PipelineSchedule more = schedule;
        more.ranks[rank].insert(more.ranks[rank].begin() + at, action);
        EXPECT_FALSE(check(more, 8).ok()) << name_of(kind) << " twice " << to_string(action);
      }
    }
  }
}

}  // namespace
}  // namespace hanji::schedule
