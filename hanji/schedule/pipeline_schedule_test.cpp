#include "hanji/schedule/pipeline_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "hanji/schedule/pipeline_check.h"
#include "hanji/schedule/pipeline_csv.h"
#include "hanji/schedule/pipeline_timeline.h"

namespace hanji::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Pipe = PipelineKind;

PipelineSchedule made(Pipe kind, int ranks, int64_t micro_batches, int stages = 1) {
  return pipeline_schedule(kind, {ranks, micro_batches, stages}).or_throw();
}

std::string refusal(Pipe kind, const PipelineShape& shape) {
  return std::string(pipeline_schedule(kind, shape).status().message());
}

std::vector<std::string> codes_of(const ActionList& actions) {
  std::vector<std::string> codes;
  for (const Action& action : actions) codes.push_back(to_code(action));
  return codes;
}

// Every kind at p = 1 to 8, m = 1 to 16 and v = 1 to 4 that it takes.
std::vector<PipelineSchedule> many_schedules() {
  std::vector<PipelineSchedule> all;
  for (const Pipe kind : pipeline_kinds()) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      for (int64_t m = 1; m <= 16; ++m) {
        for (const int v : {1, 2, 4}) {
          auto schedule = pipeline_schedule(kind, {ranks, m, v});
          if (schedule.ok()) all.push_back(*std::move(schedule));
        }
      }
    }
  }
  return all;
}

std::string name(const PipelineSchedule& schedule) {
  return std::string(name_of(schedule.kind)) + " " + std::to_string(schedule.shape.num_ranks) +
         " " + std::to_string(schedule.shape.num_micro_batches) + " " +
         std::to_string(schedule.shape.stages_per_rank);
}

double bubble(Pipe kind, int ranks, int64_t m, int v = 1) {
  return simulate(made(kind, ranks, m, v), {}).or_throw().bubble();
}

int64_t messages(const PipelineSchedule& schedule, bool forward) {
  int64_t count = 0;
  for (const ActionList& actions : schedule.ranks) {
    count += std::ranges::count_if(actions, [forward](const Action& action) {
      return action.kind == ActionKind::kSend && (action.peer > action.stage) == forward;
    });
  }
  return count;
}

TEST(PipelineSchedules, OneRankTakesTheStepOfOneStage) {
  EXPECT_EQ(made(Pipe::kNaive, 1, 3).ranks.front(), train_actions(3));
  EXPECT_EQ(made(Pipe::k1F1B, 1, 3).ranks.front(), train_actions(3));
}

TEST(PipelineSchedules, TheSecondOfTwoRanksReceivesWhatItNeedsAndNoSooner) {
  const auto schedule = made(Pipe::k1F1B, 2, 2);
  EXPECT_THAT(codes_of(schedule.ranks[0]),
              ElementsAre("0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0", "0RECV_B1",
                          "0B1", "0REDUCE_GRAD"));
  EXPECT_THAT(codes_of(schedule.ranks[1]),
              ElementsAre("1RECV_F0", "1F0", "1B0", "1SEND_B0", "1RECV_F1", "1F1", "1B1",
                          "1SEND_B1", "1REDUCE_GRAD"));
}

TEST(PipelineSchedules, AllKindsAreProvedWithTheirLeastBuffers) {
  for (const PipelineSchedule& schedule : many_schedules()) {
    const Status status = check(schedule, least_buffered_messages(schedule));
    EXPECT_TRUE(status.ok()) << name(schedule) << ": " << status.message();
  }
}

TEST(PipelineSchedules, OneBufferedMessagePerPairServesWhatDoesNotLoop) {
  for (const PipelineSchedule& schedule : many_schedules()) {
    if (schedule.shape.stages_per_rank > 1) continue;
    EXPECT_LE(least_buffered_messages(schedule), 1) << name(schedule);
  }
  EXPECT_EQ(least_buffered_messages(made(Pipe::kInterleaved, 4, 8, 2)), 1);
  EXPECT_EQ(least_buffered_messages(made(Pipe::kZbV, 4, 8, 2)), 2);
  EXPECT_EQ(least_buffered_messages(made(Pipe::kLoopedBfs, 4, 16, 2)), 4);
}

TEST(PipelineSchedules, BubblesHaveTheirClosedForms) {
  for (const int p : {2, 4, 8}) {
    for (int64_t m = 4; m <= 16; ++m) {
      const double ideal = static_cast<double>(m);
      EXPECT_NEAR(bubble(Pipe::kGpipe, p, m), (p - 1) / ideal, 1e-12);
      EXPECT_NEAR(bubble(Pipe::k1F1B, p, m), (p - 1) / ideal, 1e-12);
      if (m % p != 0) continue;
      EXPECT_NEAR(bubble(Pipe::kZbH1, p, m), (p - 1) / (3 * ideal), 1e-12);
      for (const int v : {2, 4}) {
        EXPECT_NEAR(bubble(Pipe::kInterleaved, p, m, v), (p - 1) / (v * ideal), 1e-12);
        EXPECT_NEAR(bubble(Pipe::kLoopedBfs, p, m, v), (p - 1) / (v * ideal), 1e-12);
        EXPECT_NEAR(bubble(Pipe::kInterleavedZb, p, m, v), (p - 1) / (3 * v * ideal), 1e-12);
      }
    }
  }
}

TEST(PipelineSchedules, OneBufferedMessageCostsNoTime) {
  for (const Pipe kind : {Pipe::kGpipe, Pipe::k1F1B, Pipe::kZbH1}) {
    PipelineTimes times;
    times.buffered_messages = 1;
    const auto schedule = made(kind, 4, 8);
    EXPECT_EQ(simulate(schedule, times).or_throw().seconds,
              simulate(schedule, {}).or_throw().seconds);
  }
}

TEST(PipelineSchedules, TheVIdlesOnlyBeforeAndAfterItsWork) {
  for (const int p : {2, 4, 8}) {
    const auto timeline = simulate(made(Pipe::kZbV, p, 2 * p, 2), {}).or_throw();
    EXPECT_EQ(timeline.idle_inside_seconds, 0) << p;
    EXPECT_EQ(timeline.seconds - timeline.busiest_seconds, p - 1) << p;
  }
}

TEST(PipelineSchedules, ActivationsInFlightAreThoseOfThePapers) {
  for (const int p : {2, 4, 8}) {
    for (int64_t m = 4; m <= 16; ++m) {
      for (int r = 0; r < p; ++r) {
        EXPECT_EQ(max_in_flight(made(Pipe::kGpipe, p, m).ranks[r]), m);
        EXPECT_EQ(max_in_flight(made(Pipe::k1F1B, p, m).ranks[r]), std::min<int64_t>(p - r, m));
        EXPECT_EQ(max_in_flight(made(Pipe::kZbH1, p, m).ranks[r]), std::min<int64_t>(p, m));
      }
    }
  }
  // (1 + (p - 1) / (p v)) times those of 1F1B, in parts of 1 / v.
  EXPECT_EQ(max_in_flight(made(Pipe::kInterleaved, 4, 16, 2).ranks[0]), 4 * 2 + 3);
  // Of the papers' V and DualPipeV: p and p + 1 whole layers, in halves.
  EXPECT_EQ(max_in_flight(made(Pipe::kZbV, 4, 16, 2).ranks[0]), 8);
  EXPECT_EQ(max_in_flight(made(Pipe::kDualPipeV, 4, 16, 2).ranks[0]), 9);
}

TEST(PipelineSchedules, MessagesAreTwelveEachWayThenTwentyEightAndTwentyFourInAV) {
  for (const bool forward : {true, false}) {
    EXPECT_EQ(messages(made(Pipe::k1F1B, 4, 4), forward), 12);
    EXPECT_EQ(messages(made(Pipe::kInterleaved, 4, 4, 2), forward), 28);
    EXPECT_EQ(messages(made(Pipe::kZbV, 4, 4, 2), forward), 24);
  }
}

TEST(PipelineSchedules, ShapesThatAKindDoesNotHaveAreRefused) {
  EXPECT_THAT(refusal(Pipe::kGpipe, {4, 4, 2}), HasSubstr("gpipe: 2 stages per rank; it takes 1"));
  EXPECT_THAT(refusal(Pipe::kZbV, {4, 4, 1}), HasSubstr("it takes 2"));
  EXPECT_THAT(refusal(Pipe::kLoopedBfs, {4, 4, 65}), HasSubstr("it takes 1 to 64"));
  EXPECT_THAT(refusal(Pipe::kInterleaved, {4, 13, 2}),
              HasSubstr("13 micro-batches do not fill 3 rounds; take 12 or 16"));
  EXPECT_THAT(refusal(Pipe::kDualPipeV, {4, 7, 2}), HasSubstr("take at least 8, one per stage"));
  EXPECT_THAT(refusal(Pipe::kNaive, {0, 4, 1}), HasSubstr("take at least one of each"));
  EXPECT_THAT(refusal(Pipe::kGpipe, {1 << 10, 1 << 15, 1}), HasSubstr("at most 524288"));
  EXPECT_THAT(refusal(Pipe::k1F1B, {20'000, 20'000, 1}),
              HasSubstr("20000 ranks; take at most 10240"));
  EXPECT_THAT(refusal(Pipe::kUser, {2, 2, 1}), HasSubstr("read from a file"));
}

TEST(PipelineTimelines, ALongChainTakesTimeByItsActionsAlone) {
  const PipelineSchedule schedule = made(Pipe::k1F1B, 10'000, 4);
  EXPECT_EQ(simulate(schedule, {}).or_throw().seconds, 3 * 10'003);
  EXPECT_EQ(least_buffered_messages(schedule), 1);
}

TEST(PipelineTimelines, UnevenStagesAndLatencyAddUp) {
  PipelineTimes times;
  times.stages = {{1, 2, 3}, {10, 20, 30}};
  times.latency_seconds = 0.5;
  const auto timeline = simulate(made(Pipe::kNaive, 2, 1), times).or_throw();
  EXPECT_EQ(timeline.seconds, 1 + 0.5 + 10 + 50 + 0.5 + 5);
  EXPECT_EQ(timeline.busiest_seconds, 60);
  EXPECT_EQ(timeline.idle_inside_seconds, 61);
  times.messages = {2};
  EXPECT_EQ(simulate(made(Pipe::kNaive, 2, 1), times)->seconds, timeline.seconds + 2 * 2);
}

TEST(PipelineTimelines, TimesOfAnotherNumberOfStagesAreRefused) {
  PipelineTimes times;
  times.stages.resize(3);
  EXPECT_THAT(std::string(simulate(made(Pipe::kGpipe, 2, 2), times).status().message()),
              HasSubstr("times of 3 stages for a schedule of 2"));
}

TEST(PipelineTimelines, WhetherRanksEndDependsOnBuffersAndNotOnTimes) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> seconds(0.0, 3.0);
  for (const PipelineSchedule& schedule : many_schedules()) {
    PipelineTimes times;
    for (int i = 0; i < schedule.num_stages(); ++i) {
      times.stages.push_back({seconds(random), seconds(random), seconds(random)});
    }
    times.latency_seconds = seconds(random);
    const int64_t least = least_buffered_messages(schedule);
    times.buffered_messages = least + static_cast<int64_t>(random() % 3);
    auto once = simulate(schedule, times);
    ASSERT_TRUE(once.ok()) << name(schedule) << ": " << once.status().message();
    EXPECT_EQ(once->seconds, simulate(schedule, times).or_throw().seconds);
    times.buffered_messages = least - 1;
    EXPECT_EQ(simulate(schedule, times).ok(), least == 0) << name(schedule);
  }
}

}  // namespace
}  // namespace hanji::schedule
