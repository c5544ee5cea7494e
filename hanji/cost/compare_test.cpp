#include "hanji/cost/compare.h"

#include <gmock/gmock.h>

#include <map>

namespace hanji::cost {
namespace {

using schedule::Routine;
using testing::HasSubstr;

// 5 MB to 7 ranks over links of 1 MB/s.
Question textbook(Routine routine) {
  Question question;
  question.routine = routine;
  question.bytes = 5'000'000;
  question.ranks = 8;
  question.network.bytes_per_second = 1e6;
  return question;
}

std::map<std::string, Answer> by_name(const Question& question) {
  std::map<std::string, Answer> found;
  for (Answer& one : answers(question).or_throw()) {
    found.emplace(one.algorithm.name, std::move(one));
  }
  return found;
}

std::string text_of(const Answer& answer) {
  std::string text;
  for (const Round& round : rounds_of(answer.timeline)) {
    text += text.empty() ? "" : "; ";
    for (size_t i = 0; i < round.transfers.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(round.transfers[i].from) + "->" +
              std::to_string(round.transfers[i].to);
    }
  }
  return text;
}

TEST(Textbook, BroadcastOfFiveMegabytesToSevenFriends) {
  const auto found = by_name(textbook(Routine::kBroadcast));
  EXPECT_NEAR(found.at("one_by_one").seconds(), 35, 1e-6);
  EXPECT_NEAR(found.at("all_at_once").seconds(), 35, 1e-6);
  for (const Transfer& one : found.at("all_at_once").timeline.transfers) {
    EXPECT_NEAR(static_cast<double>(one.bytes) / (one.end - one.start), 143e3, 200);
  }
  EXPECT_NEAR(found.at("binomial").seconds(), 15, 1e-6);
  EXPECT_EQ(text_of(found.at("binomial")), "0->4; 0->2, 4->6; 0->1, 2->3, 4->5, 6->7");
  EXPECT_NEAR(found.at("scatter_all_gather").seconds(), 8.75, 1e-6);
}

TEST(Textbook, APipelineOfKSegments) {
  Question question = textbook(Routine::kBroadcast);
  for (const int k : {1, 5, 50, 100}) {
    question.segments = k;
    EXPECT_NEAR(by_name(question).at("chain").seconds(), (7 + k - 1) * 5.0 / k, 1e-6) << k;
    EXPECT_NEAR(by_name(question).at("double_tree").seconds(), (3 + k - 1) * 5.0 / k, 1e-6) << k;
  }
}

TEST(Textbook, AllReduceAsATreeAndAsARing) {
  const auto found = by_name(textbook(Routine::kAllReduce));
  EXPECT_NEAR(found.at("reduce_broadcast").seconds(), 30, 1e-6);
  EXPECT_EQ(text_of(found.at("reduce_broadcast")),
            "1->0, 3->2, 5->4, 7->6; 2->0, 6->4; 4->0; "
            "0->4; 0->2, 4->6; 0->1, 2->3, 4->5, 6->7");
  EXPECT_NEAR(found.at("ring").seconds(), 8.75, 1e-6);
  EXPECT_NEAR(found.at("rabenseifner").seconds(), 8.75, 1e-6);
  // Of 8 rounds in which i + j = k (mod 8), two ranks rest in every second; slices begin at 64s.
  EXPECT_NEAR(found.at("exchange").seconds(), 10, 1e-3);
  EXPECT_NEAR(found.at("recursive_doubling").seconds(), 15, 1e-6);
  EXPECT_NEAR(by_name(textbook(Routine::kReduceScatter)).at("ring").seconds(), 4.375, 1e-6);
  EXPECT_NEAR(by_name(textbook(Routine::kAllGather)).at("ring").seconds(), 4.375, 1e-6);
  EXPECT_NEAR(by_name(textbook(Routine::kAllGather)).at("bruck").seconds(), 4.375, 1e-6);
}

TEST(ManyRanks, AreComparedByOneRanksStepsWithTheSameAnswer) {
  for (int i = 0; i < schedule::kNumRoutines; ++i) {
    Question question = textbook(static_cast<Routine>(i));
    question.ranks = kMaxWholeRanks + 36;
    question.bytes = 64 * 100 * 64;
    question.network.latency_seconds = 1e-3;
    question.ranks_per_host = 10;
    question.root = 3;
    for (const auto& algorithm : schedule::message_algorithms(question.routine)) {
      const Answer whole = answer(algorithm, question).or_throw();
      const Answer quick = compared(algorithm, question).or_throw();
      EXPECT_TRUE(whole.list.kept.is_whole()) << algorithm.name;
      EXPECT_EQ(quick.list.kept.is_whole(), !algorithm.is_symmetric) << algorithm.name;
      EXPECT_NEAR(quick.seconds(), whole.seconds(), 1e-9 * whole.seconds()) << algorithm.name;
      EXPECT_EQ(quick.steps, whole.steps) << algorithm.name;
      EXPECT_EQ(quick.sent_bytes, whole.sent_bytes) << algorithm.name;
    }
  }
}

TEST(ManyRanks, WhatIsTooLongIsLeftOutOrRefusedWithItsSteps) {
  Question question = textbook(Routine::kBroadcast);
  EXPECT_TRUE(left_out(question).empty());
  question.ranks = schedule::kMaxRanks;
  const auto found = left_out(question);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].algorithm.name, "double_tree");
  EXPECT_EQ(found[0].steps, 2 * 2 * int64_t{question.ranks - 1} * kMaxSegments + 1);
  EXPECT_EQ(answers(question)->size(), 6u) << "with 50 segments, of this size alone";
  question.segments = 60;
  EXPECT_EQ(answers(question)->size(), 5u);
  EXPECT_THAT(answer(found[0].algorithm, question).status().message(),
              testing::AllOf(HasSubstr("has 2457361 steps, but at most 2097152 are simulated"),
                             HasSubstr("fewer ranks or segments, or another algorithm")));
}

TEST(ManyRanks, ARingOfAllTakesItsFormula) {
  Question question = textbook(Routine::kAllReduce);
  question.ranks = schedule::kMaxRanks;
  question.bytes = 1000 * int64_t{question.ranks};
  question.network.latency_seconds = 1e-5;
  for (const auto& algorithm : schedule::message_algorithms(question.routine)) {
    if (algorithm.name != "ring") continue;
    const Answer ring = answer(algorithm, question).or_throw();
    const double rounds = 2.0 * (question.ranks - 1);
    EXPECT_NEAR(ring.seconds(), rounds * (1e-5 + 1000 / 1e6), 1e-6);
    EXPECT_EQ(ring.sent_bytes, 2 * (question.ranks - 1) * 1000);
    EXPECT_EQ(ring.timeline.terms.rounds, rounds);
  }
}

TEST(Textbook, ReduceIsTheBroadcastBackwards) {
  const auto found = by_name(textbook(Routine::kReduce));
  EXPECT_NEAR(found.at("binomial").seconds(), 15, 1e-6);
  EXPECT_EQ(text_of(found.at("binomial")), "1->0, 3->2, 5->4, 7->6; 2->0, 6->4; 4->0");
}

TEST(Textbook, SharesOfGatherScatterAndAllToAll) {
  EXPECT_NEAR(by_name(textbook(Routine::kGather)).at("binomial").seconds(), 4.375, 1e-6);
  EXPECT_NEAR(by_name(textbook(Routine::kScatter)).at("binomial").seconds(), 4.375, 1e-6);
  const auto all = by_name(textbook(Routine::kAllToAll));
  EXPECT_NEAR(all.at("pairwise").seconds(), 4.375, 1e-6);
  EXPECT_NEAR(all.at("bruck").seconds(), 7.5, 1e-6);
}

TEST(Textbook, SmallMessagesTurnItRound) {
  Question question = textbook(Routine::kBroadcast);
  question.network.latency_seconds = 1e-3;
  question.bytes = 100;
  const auto small = by_name(question);
  EXPECT_NEAR(small.at("binomial").seconds(), 3 * (1e-3 + 100e-6), 1e-9);
  EXPECT_LT(small.at("binomial").seconds(), small.at("scatter_all_gather").seconds());
  // 3 (a + S b) = 10 a + 7/4 S b at S = 5600 bytes.
  const auto size = crossover(small.at("binomial").algorithm,
                              small.at("scatter_all_gather").algorithm, question, 5'000'000)
                        .or_throw();
  ASSERT_TRUE(size);
  EXPECT_NEAR(static_cast<double>(*size), 5600, 40);
  EXPECT_FALSE(*crossover(small.at("scatter_all_gather").algorithm, small.at("binomial").algorithm,
                          question, 5'000'000));
}

TEST(Crossovers, AllReduceGoesFromLatencyToBandwidth) {
  Question question = textbook(Routine::kAllReduce);
  question.network.latency_seconds = 1e-4;
  const auto found = crossovers(question, 5'000'000).or_throw();
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(found.front().algorithm.name, "recursive_doubling");
  // 3 (a + S b) = 6 a + 7/4 S b at S = 240 bytes.
  EXPECT_EQ(found[1].algorithm.name, "rabenseifner");
  EXPECT_NEAR(static_cast<double>(found[1].from_bytes), 240, 8);
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_GT(found[i].from_bytes, found[i - 1].from_bytes);
    EXPECT_NE(found[i].algorithm.name, found[i - 1].algorithm.name);
  }
}

TEST(BestSegments, AreNearlyTheBestThatThereAre) {
  Question question = textbook(Routine::kBroadcast);
  question.network.latency_seconds = 1e-3;
  for (const auto& algorithm : schedule::message_algorithms(Routine::kBroadcast)) {
    if (!algorithm.is_pipelined) continue;
    question.segments = 0;
    const double chosen = answer(algorithm, question).or_throw().seconds();
    for (int k = 1; k < kMaxSegments; k += 1 + k / 8) {
      question.segments = k;
      EXPECT_LE(chosen, answer(algorithm, question).or_throw().seconds() * 1.001) << k;
    }
  }
}

TEST(Answers, AreSortedAndSayWhatIsNotOffered) {
  const auto all = answers(textbook(Routine::kAllReduce)).or_throw();
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_LE(all[i - 1].seconds(), all[i].seconds() * (1 + 1e-6));
    EXPECT_NE(all[i].algorithm.name, "hierarchical");  // nobody said what a host is
  }
  Question question = textbook(Routine::kBarrier);
  EXPECT_EQ(answers(question).status().code(), Code::kUnsupported);
  question = textbook(Routine::kBroadcast);
  question.root = 8;
  EXPECT_THAT(answers(question).status().message(), HasSubstr("root"));
  question = textbook(Routine::kAllReduce);
  question.ranks_per_host = 3;
  EXPECT_THAT(answers(question).status().message(), HasSubstr("divide the ranks"));
}

}  // namespace
}  // namespace hanji::cost
