#include "hanji/plan/operation_times.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/plan/stage_times.h"
#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

using test_plan::made;
using test_plan::two_cores;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

std::vector<std::string> names_of(const std::vector<TimedOperation>& operations) {
  std::vector<std::string> names;
  for (const TimedOperation& one : operations) names.push_back(one.name);
  return names;
}

Operation operation(std::string name, double count, double estimate,
                    OperationKind kind = OperationKind::kProduct) {
  return {.kind = kind, .name = std::move(name), .count = count, .estimate = estimate};
}

TEST(TimeOperations, TheLargestPartsOfAStepAreTimedInTurn) {
  std::vector<std::string> order;
  const auto timed =
      time_operations({operation("once", 1, 3), operation("often", 10, 1), operation("rare", 1, 2)},
                      100, [&](const std::vector<Operation>& chosen, double seconds) {
                        EXPECT_EQ(seconds, 100);
                        std::vector<CallSeconds> twice;
                        for (const Operation& one : chosen) {
                          order.push_back(one.name);
                          twice.push_back({2 * one.estimate, one.estimate / 2});
                        }
                        return twice;
                      });
  EXPECT_THAT(order, ElementsAre("often", "once", "rare"));
  EXPECT_EQ(names_of(timed), order);
  EXPECT_EQ(timed[0].seconds, 2);
  EXPECT_EQ(timed[0].forward, 0.5);
  EXPECT_EQ(timed[0].count, 10);
}

Operation recorded(std::string name, double count, double estimate) {
  return operation(std::move(name), count, estimate, OperationKind::kRecorded);
}

TEST(ScaleTimes, OperationsArePricedByThoseOfTheirOperatorInTheirOrder) {
  const std::vector<Operation> small = {recorded("mm [2] [2]", 1, 1), recorded("add [2]", 1, 2),
                                        recorded("mm [2] [4]", 1, 4)};
  const auto scaled = scale_times(
      {recorded("mm [8] [8]", 3, 64), recorded("mm [8] [16]", 1, 256), recorded("add [8]", 2, 8)},
      small, {{"mm [2] [4]", 1, 5}, {"add [2]", 1, 1, 0.5}, {"mm [2] [2]", 1, 2}});
  EXPECT_THAT(scaled, ElementsAre(TimedOperation{"mm [8] [8]", 3, 128},
                                  TimedOperation{"mm [8] [16]", 1, 320},
                                  TimedOperation{"add [8]", 2, 4, 2}));
}

TEST(ScaleTimes, WithAnotherNumberOfAnOperatorByTheNearest) {
  const std::vector<Operation> small = {recorded("mm a", 1, 1), recorded("mm b", 1, 10)};
  const std::vector<TimedOperation> timed = {{"mm a", 1, 1}, {"mm b", 1, 30}};
  const auto scaled = scale_times({recorded("mm c", 1, 20), recorded("mm d", 1, 2),
                                   recorded("mm e", 1, 8), recorded("relu", 1, 1)},
                                  small, timed);
  EXPECT_EQ(scaled[0].seconds, 60);
  EXPECT_EQ(scaled[1].seconds, 2);
  EXPECT_DOUBLE_EQ(scaled[2].seconds, 24);
  EXPECT_EQ(scaled[3].seconds, 1) << "no operator of its own: the nearest of all";
}

TEST(TimeOperations, WhatTheBudgetLeavesOutIsPricedByTheNearestOfItsKind) {
  size_t given = 0;
  const auto timed =
      time_operations({operation("large", 1, 4), operation("norm", 1, 3, OperationKind::kNorm),
                       operation("small", 1, 2)},
                      3 * (4 + 3), [&](const std::vector<Operation>& chosen, double) {
                        given = chosen.size();
                        return std::vector<CallSeconds>{{12, 3}, {9, 4}};
                      });
  EXPECT_EQ(given, 2u) << "three rounds of all three do not fit";
  EXPECT_EQ(timed[2].name, "small");
  EXPECT_EQ(timed[2].seconds, 6) << "as the large product: three times the estimate";
  EXPECT_EQ(timed[2].forward, 1.5);
}

TEST(TimeOperations, OneIsTimedWhateverItTakes) {
  const auto timed = time_operations({operation("slow", 1, 100)}, 1,
                                     [](auto&&, double) { return std::vector<CallSeconds>{{50}}; });
  EXPECT_EQ(timed[0].seconds, 50);
}

TEST(TimeOperations, EstimatesServeWhereNothingCouldBeTimed) {
  const auto timed = time_operations({operation("one", 1, 4)}, 1,
                                     [](auto&&, double) { return std::vector<CallSeconds>{{0}}; });
  EXPECT_EQ(timed[0].seconds, 4);
}

TEST(OperationsOf, EqualOnesOfAllLayersAreOne) {
  Config config;
  config.model.preset = "char";
  PlanInputs inputs = two_cores();
  inputs.config = config;
  const auto all = operations_of(made(inputs).model, 8);
  const auto count_of = [&](const std::string& name) {
    for (const Operation& one : all) {
      if (one.name == name) return one.count;
    }
    return 0.0;
  };
  EXPECT_EQ(count_of("product 8 x 64 x 512 x 128"), 4) << "up, of four blocks";
  EXPECT_EQ(count_of("norm 8 x 64 x 128 x 1"), 9) << "two of each block, and the last";
  EXPECT_EQ(count_of("attention 8 x 64 x 128 x 4"), 4);
  EXPECT_EQ(count_of("gelu 8 x 64 x 512 x 1"), 4);
  EXPECT_EQ(count_of("embedding 8 x 64 x 128 x 65"), 1);
  EXPECT_EQ(count_of("loss 8 x 64 x 65 x 1"), 1);
  EXPECT_EQ(all.size(), 10u);
  for (const Operation& one : all) EXPECT_GT(one.estimate, 0) << one.name;
}

TEST(OperationsOf, CopiesBesideCallsAreOfAllSamplesTogether) {
  ModelFacts model{.layers = {{.name = "cut", .copied = {{.fixed = 2, .per_sample = 3}}}}};
  model.layers.push_back(model.layers[0]);
  const auto all = operations_of(model, 8);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].name, "copy 1 x 1 x 26 x 1");
  EXPECT_EQ(all[0].count, 2);
}

OperationTimes some_times() {
  return {.samples = 4,
          .operations = {{"product", 3, 0.002}, {"norm", 2, 0.001}},
          .update_seconds = 0.003,
          .sample_seconds = 0.0001};
}

TEST(OperationTimes, AreWhatAStepIsPricedBy) {
  PlanInputs inputs = two_cores();
  inputs.config.run.ranks = 1;
  inputs.times = some_times();
  const Plan plan = made(inputs);
  EXPECT_THAT(plan.predicted.compute_seconds, DoubleNear(16.0 / 4 * 0.008 + 0.003, 1e-9));
  EXPECT_THAT(plan.predicted.data_seconds, DoubleNear(16 * 0.0001 / 2, 1e-9)) << "both cores read";
  EXPECT_EQ(plan.config.data.workers, 1);
  EXPECT_EQ(plan.config.data.prefetch, 0) << "both compute";
  inputs.config.data.workers = 0;
  EXPECT_THAT(made(inputs).predicted.data_seconds, DoubleNear(16 * 0.0001, 1e-9));
  EXPECT_THAT(describe(plan), HasSubstr("of 4 samples timed one by one, 8.00 ms together"));
  inputs.config.parallel.data = Sharding::kZero1;
  inputs.config.run.ranks = 2;
  const double shared = made(inputs).predicted.compute_seconds - 8.0 / 4 * 0.008;
  EXPECT_GT(shared, 0.0015) << "half of the update, and copied gradients";
  EXPECT_LT(shared, 0.003);
}

TEST(OperationTimes, StayInThePlan) {
  PlanInputs inputs = two_cores();
  inputs.times = some_times();
  inputs.times.layers = {{1, 2, 0.5}, {3, 4, 0}};
  const Plan plan = made(inputs);
  const auto again = plan_from_json(to_json(plan));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->times, inputs.times);
}

// Of what a model was seen to call, names say nothing: the layers that called it do.
TEST(OperationTimes, OfRecordedOperationsAreSortedByTheLayersThatCallThem) {
  ModelFacts model{.layers = {{.name = "first"}, {.name = "second", .for_weights = Amount()}}};
  const std::vector<Operation> recorded = {
      {.name = "mm", .count = 5, .layers = {{1, 0, 2}, {1, 1, 0}}, .is_product = true},
      {.name = "mm for weights", .count = 2, .layers = {{}, {0, 0, 2}}, .is_product = true},
      {.name = "add", .count = 1, .layers = {{}, {0, 0, 1}}}};
  const OperationTimes times{
      .samples = 2,
      .operations = {{"add", 1, 4}, {"mm", 5, 10}, {"mm for weights", 2, 100}},
      .layers = sort_by_layers(
          model, recorded,
          std::vector<TimedOperation>{{"add", 1, 4}, {"mm", 5, 10}, {"mm for weights", 2, 100}})};
  const auto layers = layer_times(model, times);
  EXPECT_EQ(layers[0], (schedule::StageSeconds{5, 10, 0}));
  EXPECT_EQ(layers[1], (schedule::StageSeconds{5, (10 + 100 + 4) / 2.0, 50}))
      << "half of a product's backward is the weights'";
  EXPECT_EQ(layers[0].whole() + layers[1].whole(), times.seconds_of(1));
}

TEST(OperationTimes, OfUnknownNamesAreSharedOutByEstimates) {
  const PlanInputs inputs = two_cores();
  const ModelFacts model = made(inputs).model;
  const OperationTimes times{.samples = 2, .operations = {{"all", 1, 3}}};
  double sum = 0;
  for (const double one : layer_seconds(model, times)) {
    EXPECT_GT(one, 0);
    sum += one;
  }
  EXPECT_THAT(sum, DoubleNear(1.5, 1e-12));
}

TEST(OperationTimes, OfFewerResiduesStayInThePlanWhichSaysSo) {
  PlanInputs inputs = two_cores();
  inputs.times = some_times();
  inputs.times.residues = 12;
  const Plan plan = made(inputs);
  std::string said = describe(plan);
  std::ranges::replace(said, '\n', ' ');
  EXPECT_THAT(said, testing::ContainsRegex("2 +operations +of +4 +samples, +scaled"));
  EXPECT_THAT(said, testing::ContainsRegex("from +those +of +12 +residues"));
  const auto again = plan_from_json(to_json(plan));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->times, inputs.times);
}

TEST(OperationTimes, PartsOfASampleAddUpToItAndNoneIsBelowZero) {
  // The third was read as fast as without its part; all of them twice as slowly as by themselves.
  const auto parts = parts_of_sample({"read", "decode", "flip", "normalise"}, {1, 5, 4.9, 8}, 16);
  const std::vector<SamplePart> expected = {
      {"read", 2}, {"decode", 8}, {"flip", 0}, {"normalise", 6}};
  EXPECT_EQ(parts, expected);
  EXPECT_EQ(longest_part(parts)->name, "decode");
  EXPECT_EQ(longest_part({}), nullptr);
}

TEST(OperationTimes, PartsOfASampleStayInThePlanWhichNamesTheLongest) {
  PlanInputs inputs = two_cores();
  inputs.times = some_times();
  inputs.times.sample_seconds = 0.01;
  inputs.times.sample_parts = {{"read", 0.001}, {"decode", 0.006}, {"flip", 0}, {"hue", 0.003}};
  inputs.config.data.files = "x.beton";
  const Plan plan = made(inputs);
  const std::string said = describe(plan);
  EXPECT_THAT(said, testing::ContainsRegex("samples a rank reads per second +100\n"));
  EXPECT_THAT(said, testing::ContainsRegex("    read +10 %, 1.00 k/s\n"));
  EXPECT_THAT(said, testing::ContainsRegex("    decode +60 %, 167/s\n"));
  EXPECT_THAT(said, testing::ContainsRegex("    flip +0 %\n"));
  EXPECT_THAT(said, testing::ContainsRegex("    bottleneck of reading +decode\n"));
  const auto again = plan_from_json(to_json(plan));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->times, inputs.times);
}

// Of both ranks' 16 samples, a tenth of a page each at 100 ms: a step of less waits for the rest.
TEST(OperationTimes, OfPagesAreWaitedForWhereTheyTakeLongerThanAStep) {
  PlanInputs inputs = two_cores();
  inputs.times = some_times();
  const Prediction fast = made(inputs).predicted;
  inputs.times.page_seconds = 0.1;
  inputs.times.pages_per_sample = 0.1;
  const Plan plan = made(inputs);
  ASSERT_LT(fast.step_seconds, 0.16);
  EXPECT_THAT(plan.predicted.step_seconds, DoubleNear(0.16, 1e-9));
  EXPECT_THAT(plan.predicted.data_seconds,
              DoubleNear(fast.data_seconds + 0.16 - fast.step_seconds, 1e-9));
  EXPECT_EQ(plan_from_json(to_json(plan)).or_throw().times, inputs.times);
  inputs.times.pages_per_sample = 0;  // all of them stay
  EXPECT_EQ(made(inputs).predicted.step_seconds, fast.step_seconds);
}

TEST(OperationTimes, SpoiltOnesAreCorrupt) {
  const std::string good = to_json(some_times());
  EXPECT_EQ(operation_times_from_json(good).or_throw(), some_times());
  for (const auto& [part, other] :
       {std::pair("\"samples\":4", "\"samples\":0"), std::pair("0.003", "-1"),
        std::pair("\"norm\"", "7"), std::pair("\"count\"", "\"counts\""),
        std::pair("{", "{\"layers\":[[1,2]],"), std::pair("{", "{\"layers\":[[1,2,-3]],")}) {
    std::string bad = good;
    bad.replace(bad.find(part), std::string_view(part).size(), other);
    EXPECT_EQ(operation_times_from_json(bad).status().code(), Code::kCorrupt) << other;
  }
}

}  // namespace
}  // namespace hanji::plan
