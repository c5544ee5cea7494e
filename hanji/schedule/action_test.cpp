#include "hanji/schedule/action.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hanji::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ActionKind;

Action of(Kind kind, int64_t micro_batch, int stage = 0) { return {kind, stage, micro_batch}; }

std::string mistake(const ActionList& actions) {
  const Status status = check(actions);
  return status.ok() ? "" : std::string(status.message());
}

/// 1F1B of the first of two stages.
ActionList one_forward_one_backward() {
  return {of(Kind::kForward, 0), of(Kind::kForward, 1),  of(Kind::kBackward, 0),
          of(Kind::kForward, 2), of(Kind::kBackward, 1), of(Kind::kBackward, 2),
          of(Kind::kReduce, 0)};
}

TEST(ForwardActions, PassFlowsOnBetweenTheStagesOfOtherRanks) {
  using Kind = ActionKind;
  EXPECT_THAT(forward_actions({0, 1, 1, 0}, 1, 1),
              ElementsAre(Action{Kind::kReceive, 1, 0, 0}, Action{Kind::kForward, 1, 0},
                          Action{Kind::kForward, 2, 0}, Action{Kind::kSend, 2, 0, 3}));
  EXPECT_THAT(forward_actions({0, 1, 1, 0}, 0, 1),
              ElementsAre(Action{Kind::kForward, 0, 0}, Action{Kind::kSend, 0, 0, 1},
                          Action{Kind::kReceive, 3, 0, 2}, Action{Kind::kForward, 3, 0}));
}

TEST(Actions, AStepOfOneStageIsForwardAndBackwardInTurnThenItsReduce) {
  EXPECT_THAT(train_actions(2),
              ElementsAre(of(Kind::kForward, 0), of(Kind::kBackward, 0), of(Kind::kForward, 1),
                          of(Kind::kBackward, 1), of(Kind::kReduce, 0)));
  EXPECT_THAT(forward_actions({0}, 0, 2),
              ElementsAre(of(Kind::kForward, 0), of(Kind::kForward, 1)));
  EXPECT_TRUE(train_actions(0).empty());
}

TEST(Actions, ListsInAnOrderThatCanRunPass) {
  EXPECT_EQ(mistake(train_actions(3)), "");
  EXPECT_EQ(mistake(forward_actions({0}, 0, 3)), "");
  EXPECT_EQ(mistake(one_forward_one_backward()), "");
  EXPECT_EQ(mistake({of(Kind::kForward, 0), of(Kind::kBackwardInput, 0), of(Kind::kForward, 1),
                     of(Kind::kBackwardWeight, 0), of(Kind::kBackward, 1), of(Kind::kReduce, 0)}),
            "");
}

TEST(Actions, WhatIsOutOfOrderIsNamed) {
  EXPECT_EQ(
      mistake({of(Kind::kForward, 0), of(Kind::kBackward, 1)}),
      "action 1, backward of stage 0, micro-batch 1, is out of order: its forward has not run");
  EXPECT_THAT(mistake({of(Kind::kForward, 0), of(Kind::kForward, 0)}), HasSubstr("has run before"));
  EXPECT_THAT(mistake({of(Kind::kForward, 0), of(Kind::kBackward, 0), of(Kind::kBackward, 0)}),
              HasSubstr("has run before"));
  EXPECT_THAT(mistake({of(Kind::kForward, 0), of(Kind::kBackwardInput, 0), of(Kind::kBackward, 0)}),
              HasSubstr("has run before"));
  EXPECT_THAT(mistake({of(Kind::kForward, 0), of(Kind::kBackwardWeight, 0)}),
              HasSubstr("its backward_input has not run"));
  EXPECT_THAT(mistake({of(Kind::kReduce, 0)}), HasSubstr("no backward of the stage"));
  EXPECT_THAT(mistake({of(Kind::kForward, 0), of(Kind::kForward, 1), of(Kind::kBackward, 0),
                       of(Kind::kReduce, 0), of(Kind::kBackward, 1)}),
              HasSubstr("have been reduced"));
  EXPECT_THAT(mistake({of(Kind::kForward, 0), of(Kind::kBackward, 0), of(Kind::kReduce, 0),
                       of(Kind::kReduce, 0)}),
              HasSubstr("action 3, reduce"));
}

TEST(Actions, AStageIsUnshardedFromItsFirstToItsLastComputation) {
  const ActionList two = {of(Kind::kForward, 0, 0),  of(Kind::kForward, 0, 2),
                          of(Kind::kBackward, 0, 2), of(Kind::kReduce, 0, 2),
                          of(Kind::kBackward, 0, 0), of(Kind::kReduce, 0, 0)};
  const ActionList unsharded = with_unshards(two);
  EXPECT_THAT(unsharded, ElementsAre(of(Kind::kUnshard, 0, 0), two[0], of(Kind::kUnshard, 0, 2),
                                     two[1], two[2], of(Kind::kReshard, 0, 2), two[3], two[4],
                                     of(Kind::kReshard, 0, 0), two[5]));
  EXPECT_EQ(mistake(unsharded), "");
}

TEST(Actions, ParametersThatAreShardedOrStaleAreNamed) {
  EXPECT_THAT(mistake({of(Kind::kForward, 0), of(Kind::kUnshard, 0), of(Kind::kReshard, 0)}),
              HasSubstr("action 0, forward of stage 0, micro-batch 0, is out of order: the stage's "
                        "parameters are sharded"));
  EXPECT_THAT(mistake({of(Kind::kUnshard, 0), of(Kind::kForward, 0), of(Kind::kReshard, 0),
                       of(Kind::kBackward, 0)}),
              HasSubstr("the stage's parameters are sharded"));
  EXPECT_THAT(mistake({of(Kind::kUnshard, 0), of(Kind::kForward, 0)}),
              HasSubstr("stage 0 is not resharded: the next step would compute with stale"));
  EXPECT_THAT(mistake({of(Kind::kForward, 0), of(Kind::kReshard, 0)}),
              HasSubstr("the stage has not been unsharded"));
}

TEST(Actions, StagesAreOrderedEachByItself) {
  EXPECT_EQ(mistake({of(Kind::kForward, 0, 0), of(Kind::kForward, 0, 2), of(Kind::kBackward, 0, 2),
                     of(Kind::kReduce, 0, 2), of(Kind::kBackward, 0, 0), of(Kind::kReduce, 0, 0)}),
            "");
}

TEST(Actions, OnlyTheLastBackwardBeforeAReduceCompletesTheGradients) {
  const ActionList actions = one_forward_one_backward();
  for (size_t i = 0; i < actions.size(); ++i) {
    EXPECT_EQ(completes_gradients(actions, i), i == 5) << i;
  }
  EXPECT_FALSE(completes_gradients({of(Kind::kForward, 0), of(Kind::kBackward, 0)}, 1))
      << "nothing reduces";
}

TEST(Actions, MemoryIsTheMostThatIsKeptAtOnce) {
  const auto bytes = [](const Action& forward) {
    return KeptBytes{.forward = 10 + forward.micro_batch};
  };
  EXPECT_EQ(peak_bytes(train_actions(3), bytes), 12);
  EXPECT_EQ(peak_bytes(one_forward_one_backward(), bytes), 11 + 12);
  EXPECT_EQ(peak_bytes(forward_actions({0}, 0, 3), bytes), 0) << "no backward keeps anything";
}

TEST(Actions, MemoryOfASplitBackwardIsThatOfItsParts) {
  const ActionList actions = {of(Kind::kForward, 0),        of(Kind::kBackwardInput, 0),
                              of(Kind::kForward, 1),        of(Kind::kBackwardInput, 1),
                              of(Kind::kBackwardWeight, 0), of(Kind::kBackwardWeight, 1)};
  const auto peak = [&](KeptBytes bytes) {
    return peak_bytes(actions, [&](const Action&) { return bytes; });
  };
  EXPECT_EQ(peak({.forward = 10}), 10) << "backward_input frees all";
  EXPECT_EQ(peak({.forward = 10, .weights = 4}), 4 + 10);
  EXPECT_EQ(peak({.forward = 10, .weights = 12}), 12 + 12);
  EXPECT_EQ(peak({.forward = 10, .weights = 4, .growth = 3}), 4 + 10 + 3);
}

TEST(Actions, GradientsAreAddedByTheSecondPartOfASplitBackward) {
  const ActionList actions = {of(Kind::kForward, 0),        of(Kind::kForward, 1),
                              of(Kind::kBackwardInput, 0),  of(Kind::kBackwardInput, 1),
                              of(Kind::kBackwardWeight, 1), of(Kind::kBackwardWeight, 0)};
  EXPECT_THAT(gradient_order(actions, 0, true), testing::ElementsAre(1, 0));
  EXPECT_THAT(gradient_order(actions, 0, false), testing::ElementsAre(0, 1));
}

}  // namespace
}  // namespace hanji::schedule
