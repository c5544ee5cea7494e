#include "hanji/report/collective_cost.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"
#include "hanji/base/limits.h"

namespace hanji::report {
namespace {

using schedule::Routine;
using testing::HasSubstr;

cost::Question textbook(Routine routine) {
  cost::Question question;
  question.routine = routine;
  question.bytes = 5'000'000;
  question.ranks = 8;
  question.network.bytes_per_second = 1e6;
  return question;
}

TEST(CollectiveCost, OfANetworkIsSortedAndSaysWhy) {
  const auto cost = cost_on_network(textbook(Routine::kAllReduce)).or_throw();
  ASSERT_GE(cost.rows.size(), 5u);
  for (size_t i = 1; i < cost.rows.size(); ++i) {
    EXPECT_LE(cost.rows[i - 1].terms.seconds(), cost.rows[i].terms.seconds() * (1 + 1e-6));
  }
  EXPECT_EQ(cost.rows[0].moved_bytes, 8'750'000);
  const std::string text = to_text(cost);
  EXPECT_THAT(text, HasSubstr("all_reduce of 5.00 MB, 8 ranks, over links of 1.00 MB/s each way, "
                              "no latency"));
  EXPECT_THAT(text, testing::ContainsRegex("ring +8.75 s"));
  EXPECT_THAT(text, testing::ContainsRegex("reduce_broadcast +30 s"));
  EXPECT_THAT(text,
              HasSubstr("the fastest by size over links of 1.00 MB/s each way, 1 ms latency"));
  EXPECT_GT(cost.sizes.size(), 1u);
}

TEST(CollectiveCost, TheRunnerUpLosesByItsTerms) {
  CollectiveCost cost;
  cost.rows = {{"fast", 0, 1, 1, {.latency = 3, .bandwidth = 1}, ""},
               {"slow", 0, 1, 1, {.latency = 1, .bandwidth = 4, .reduction = 0.5}, ""}};
  EXPECT_EQ(why(cost),
            "slow loses against fast by 1.5 s: -2 s of latency, +3 s of bandwidth, "
            "+500 ms of reduction");
  cost.rows[1].terms = cost.rows[0].terms;
  EXPECT_EQ(why(cost), "slow takes as long as fast");
  cost.rows.pop_back();
  EXPECT_EQ(why(cost), "");
}

TEST(CollectiveCost, InMemoryGoesFromOneMeetingToTheLeastTraffic) {
  const auto cost = cost_in_memory(textbook(Routine::kAllReduce), cost::Rates{}).or_throw();
  EXPECT_EQ(cost.sizes.front().algorithm, "flat");
  EXPECT_EQ(cost.sizes.front().from_bytes, 4);
  EXPECT_EQ(cost.sizes.back().algorithm, "direct");
  EXPECT_EQ(cost.rows.front().algorithm, "direct");
  EXPECT_THAT(to_text(cost), HasSubstr("in shared memory, 20.0 GB/s together, 1 us to meet"));
  EXPECT_EQ(cost_in_memory(textbook(Routine::kTreeReduce), cost::Rates{}).status().code(),
            Code::kUnsupported);
  cost::Question large = textbook(Routine::kAllReduce);
  large.bytes = kMaxBytesInMemory + 1;
  EXPECT_THAT(cost_in_memory(large, cost::Rates{}).status().message(),
              HasSubstr("at most 16 ranks and 1.00 GB"));
  large = textbook(Routine::kAllReduce);
  large.ranks = base::kMaxRanksPerHost + 1;
  EXPECT_EQ(cost_in_memory(large, cost::Rates{}).status().code(), Code::kInvalidArgument);
}

TEST(CollectiveCost, EveryRoutineHasACostInMemoryAndBetweenMachines) {
  for (const Routine routine :
       {Routine::kBroadcast, Routine::kReduce, Routine::kAllReduce, Routine::kGather,
        Routine::kScatter, Routine::kAllGather, Routine::kReduceScatter, Routine::kAllToAll}) {
    cost::Question question = textbook(routine);
    question.ranks = 3;
    EXPECT_TRUE(cost_in_memory(question, cost::Rates{}).ok()) << name_of(routine);
    EXPECT_TRUE(cost_on_network(question).ok()) << name_of(routine);
  }
}

TEST(CollectiveCost, ABarrierIsOneMeetingAndMovesNothing) {
  cost::Question question = textbook(Routine::kBarrier);
  question.bytes = 0;
  const auto cost = cost_in_memory(question, cost::Rates{}).or_throw();
  ASSERT_EQ(cost.rows.size(), 1u);
  EXPECT_EQ(cost.rows[0].terms.rounds, 1);
  EXPECT_EQ(cost.rows[0].moved_bytes, 0);
  EXPECT_DOUBLE_EQ(cost.rows[0].terms.seconds(), cost.rows[0].terms.latency);
  EXPECT_THAT(to_text(cost), testing::StartsWith("barrier, 8 ranks, in shared memory"));
  EXPECT_THAT(to_text(cost), testing::Not(HasSubstr("by size")));
  EXPECT_THAT(cost_on_network(question).status().message(), HasSubstr("leave out --bandwidth"));
}

TEST(CollectiveCost, ASendIsBetweenTwoAndSaysWhatIsTaken) {
  const auto here = cost_in_memory(textbook(Routine::kSend), cost::Rates{}).or_throw();
  EXPECT_EQ(here.ranks, 2);
  EXPECT_EQ(here.sizes.back().algorithm, "direct");
  EXPECT_THAT(to_text(here), HasSubstr("direct, which the receiver ends alone"));
  EXPECT_THAT(to_text(here), HasSubstr("\ntaken by size:\n"));
  cost::Question question = textbook(Routine::kSend);
  question.network.latency_seconds = 0.5;
  const auto there = cost_on_network(question).or_throw();
  ASSERT_EQ(there.rows.size(), 1u);
  EXPECT_DOUBLE_EQ(there.rows[0].terms.seconds(), 5.5) << there.rows[0].formula;
  EXPECT_EQ(there.rows[0].moved_bytes, 5'000'000);
}

TEST(CollectiveCost, EveryLetterOfAFormulaIsExplained) {
  cost::Question question = textbook(Routine::kAllReduce);
  question.ranks_per_host = 4;
  const std::string text = symbols_of(cost_on_network(question).or_throw());
  for (const char* letter : {"a: ", "b: ", "S: ", "p: ", "k: ", "l: ", "h: "}) {
    EXPECT_THAT(text, HasSubstr(letter));
  }
  const std::string here = symbols_of(cost_in_memory(question, cost::Rates{}).or_throw());
  EXPECT_THAT(here, testing::Not(HasSubstr("S: "))) << "no formulas in memory";
}

TEST(CollectiveCost, JsonHoldsTheSameNumbers) {
  const auto cost = cost_on_network(textbook(Routine::kBroadcast)).or_throw();
  const auto json = base::parse_json(to_json(cost)).or_throw();
  EXPECT_EQ(json["routine"], "broadcast");
  EXPECT_EQ(json["algorithms"].size(), cost.rows.size());
  for (size_t i = 0; i < cost.rows.size(); ++i) {
    EXPECT_EQ(json["algorithms"][i]["name"], cost.rows[i].algorithm);
    EXPECT_EQ(json["algorithms"][i]["seconds"], cost.rows[i].terms.seconds());
  }
  EXPECT_EQ(json["why"], why(cost));
  EXPECT_EQ(json["sizes"].size(), cost.sizes.size());
}

TEST(ExactSeconds, ShowsFourDigits) {
  EXPECT_EQ(exact_seconds(35), "35 s");
  EXPECT_EQ(exact_seconds(4.375), "4.375 s");
  EXPECT_EQ(exact_seconds(1e-3), "1 ms");
  EXPECT_EQ(exact_seconds(12.5e-6), "12.5 us");
  EXPECT_EQ(exact_seconds(0), "0 s");
}

}  // namespace
}  // namespace hanji::report
