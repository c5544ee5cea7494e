#include <gmock/gmock.h>

#include "hanji/report/certificate.h"

namespace hanji::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Two steps of a job with a buffer, two gradients and two parameters on grains 0 to 3.
ObservedRun one_process() {
  ObservedRun run{.state_sha256 = "5a"};
  for (int64_t step = 0; step < 3; ++step) {
    run.steps.push_back({.step = step,
                         .parameters_sha256 = "9b",
                         .digests = {{Quantity::kBuffer, "mean", 1},
                                     {Quantity::kGradient, "w", 2},
                                     {Quantity::kGradient, "b", 3},
                                     {Quantity::kParameter, "w", 4},
                                     {Quantity::kParameter, "b", 5},
                                     {Quantity::kTotal, "loss", 6}},
                         .backwards = {{{0}, 10}, {{1}, 11}, {{2}, 12}, {{3}, 13}}});
  }
  return run;
}

/// Rank 0 owns grains 0 and 1, rank 1 the others.
std::vector<ObservedRun> two_ranks() {
  std::vector<ObservedRun> ranks(2, one_process());
  for (ObservedStep& step : ranks[0].steps) step.backwards = {{{0}, 10}, {{1}, 11}};
  for (ObservedStep& step : ranks[1].steps) step.backwards = {{{2}, 12}, {{3}, 13}};
  return ranks;
}

Digest& tensor(ObservedRun& run, size_t step, size_t index) {
  return run.steps[step].digests[index];
}

FirstDifference found_in(const std::vector<ObservedRun>& ranks) {
  const auto found = first_difference(one_process(), ranks).or_throw();
  EXPECT_TRUE(found.has_value());
  return found.value_or(FirstDifference{});
}

TEST(FirstDifference, ThereIsNoneBetweenEqualRuns) {
  EXPECT_FALSE(first_difference(one_process(), two_ranks()).or_throw().has_value());
}

TEST(FirstDifference, TheEarliestStepWins) {
  auto ranks = two_ranks();
  tensor(ranks[0], 2, 0).value = 99;
  tensor(ranks[1], 1, 4).value = 99;
  const FirstDifference found = found_in(ranks);
  EXPECT_EQ(found.step, 1);
  EXPECT_EQ(found.quantity, Quantity::kParameter);
  EXPECT_EQ(found.tensor, "b");
  EXPECT_THAT(found.ranks, ElementsAre(1));
  EXPECT_FALSE(found.replicas_agree);
  EXPECT_EQ(found.num_tensors, 1);
  EXPECT_EQ(found.of_tensors, 2);
  EXPECT_FALSE(found.backward.has_value());
}

TEST(FirstDifference, WithinAStepBuffersComeFirstThenGradientsInTheModelsOrder) {
  auto ranks = two_ranks();
  tensor(ranks[0], 1, 2).value = 99;
  tensor(ranks[1], 1, 1).value = 99;
  tensor(ranks[1], 1, 5).value = 99;
  EXPECT_EQ(found_in(ranks).tensor, "w") << "the earlier tensor, though on the later rank";
  tensor(ranks[1], 1, 0).value = 99;
  EXPECT_EQ(found_in(ranks).tensor, "mean");
  EXPECT_EQ(found_in(ranks).quantity, Quantity::kBuffer);
}

TEST(FirstDifference, SaysWhetherTheReplicasAgreeOnTheWrongBits) {
  auto ranks = two_ranks();
  for (ObservedRun& rank : ranks) tensor(rank, 1, 1).value = 99;
  EXPECT_THAT(found_in(ranks).ranks, ElementsAre(0, 1));
  EXPECT_TRUE(found_in(ranks).replicas_agree);
  tensor(ranks[1], 1, 1).value = 98;
  EXPECT_FALSE(found_in(ranks).replicas_agree);
}

TEST(FirstDifference, NamesTheBackwardThatWentWrongFirst) {
  auto ranks = two_ranks();
  for (ObservedRun& rank : ranks) tensor(rank, 1, 1).value = 99;
  EXPECT_FALSE(found_in(ranks).backward.has_value()) << "then it is the sum";
  ranks[1].steps[1].backwards[{3}] = 99;
  EXPECT_EQ(found_in(ranks).backward, (FirstDifference::Backward{1, 3}));
}

TEST(FirstDifference, ABackwardIsComparedWithItsOwnPart) {
  ObservedRun expected = one_process();
  for (ObservedStep& step : expected.steps) step.backwards = {{{0, 0}, 10}, {{0, 1}, 11}};
  std::vector<ObservedRun> ranks(2, expected);
  for (ObservedStep& step : ranks[0].steps) step.backwards = {{{0, 0}, 10}};
  for (ObservedStep& step : ranks[1].steps) step.backwards = {{{0, 1}, 11}};
  tensor(ranks[0], 1, 1).value = 99;
  EXPECT_FALSE(first_difference(expected, ranks).or_throw()->backward.has_value());
  ranks[1].steps[1].backwards[{0, 1}] = 10;
  EXPECT_EQ(first_difference(expected, ranks).or_throw()->backward,
            (FirstDifference::Backward{1, 0}));
}

TEST(FirstDifference, ATensorThatOneSideLacksDiffers) {
  auto ranks = two_ranks();
  ranks[1].steps[0].digests.erase(ranks[1].steps[0].digests.begin());
  EXPECT_EQ(found_in(ranks).tensor, "mean");
  EXPECT_THAT(found_in(ranks).ranks, ElementsAre(1));
  ranks = two_ranks();
  ranks[0].steps[0].digests.push_back({Quantity::kBuffer, "variance", 1});
  EXPECT_EQ(found_in(ranks).tensor, "variance");
  EXPECT_THAT(found_in(ranks).ranks, ElementsAre(0));
}

TEST(FirstDifference, ARunThatEndedEarlyIsRefused) {
  auto ranks = two_ranks();
  ranks[1].steps.pop_back();
  const Status status = first_difference(one_process(), ranks).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 was seen 2 times"));
}

TEST(FirstDifference, TheStatesHashHasTheLastWord) {
  auto ranks = two_ranks();
  ranks[1].state_sha256 = "5b";
  EXPECT_EQ(first_difference(one_process(), ranks).status().code(), Code::kInternal);
}

TEST(Observed, JsonKeepsEverything) {
  ObservedRun run = two_ranks()[1];
  run.farthest = 1.5e-15;
  EXPECT_EQ(observed_from_json(to_json(run)).or_throw(), run);
}

TEST(Observed, DamagedJsonIsRefused) {
  const std::string whole = to_json(one_process());
  EXPECT_EQ(observed_from_json(whole.substr(0, whole.size() / 2)).status().code(), Code::kCorrupt);
  EXPECT_EQ(observed_from_json("{}").status().code(), Code::kCorrupt);
  const std::string beyond =
      R"({"state_sha256": "ab", "farthest": 0, "steps": [{"step": 6e24, "parameters_sha256": "cd"}]})";
  EXPECT_THAT(observed_from_json(beyond).status().message(), HasSubstr("no integer"));
  EXPECT_EQ(observed_from_json("[3]").status().code(), Code::kCorrupt);
  std::string no_number = whole;
  no_number.replace(no_number.find("000000"), 6, "00x000");
  EXPECT_THAT(observed_from_json(no_number).status().message(), HasSubstr("is no number"));
}

}  // namespace
}  // namespace hanji::report
