#include "hanji/report/simulation.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"

namespace hanji::report {
namespace {

using schedule::Routine;
using testing::ContainsRegex;
using testing::HasSubstr;

cost::Question textbook(Routine routine) {
  cost::Question question;
  question.routine = routine;
  question.bytes = 5'000'000;
  question.ranks = 8;
  question.network.bytes_per_second = 1e6;
  return question;
}

TEST(Simulation, PrintsTheBroadcastOfTheTextbook) {
  const std::string text = simulation_text(textbook(Routine::kBroadcast)).or_throw();
  EXPECT_THAT(text, ContainsRegex("one_by_one +35 s"));
  EXPECT_THAT(text, ContainsRegex("all_at_once +35 s"));
  EXPECT_THAT(text, HasSubstr("5.00 MB at 143 kB/s each; then 7 friends served"));
  EXPECT_THAT(text, ContainsRegex("binomial +15 s"));
  EXPECT_THAT(text, ContainsRegex("at      0 s  0->4 .*then 1 friend served"));
  EXPECT_THAT(text, ContainsRegex("at      5 s  0->2, 4->6 .*then 3 friends served"));
  EXPECT_THAT(text, ContainsRegex("at     10 s  0->1, 2->3, 4->5, 6->7 .*then 7 friends served"));
  EXPECT_THAT(text, ContainsRegex("scatter_all_gather +8.75 s"));
  EXPECT_THAT(text, HasSubstr("chain by segments k: 35 s with 1, 11 s with 5, 5.6 s with 50"));
}

TEST(Simulation, PrintsTheAllReduceOfTheTextbook) {
  const std::string text = simulation_text(textbook(Routine::kAllReduce)).or_throw();
  EXPECT_THAT(text, ContainsRegex("reduce_broadcast +30 s"));
  EXPECT_THAT(text, HasSubstr("1->0, 3->2, 5->4, 7->6"));
  EXPECT_THAT(text, HasSubstr("2->0, 6->4 "));
  // 6 (a + S b) = 14 a + 7/4 S b at S = 1882 bytes.
  EXPECT_THAT(text, ContainsRegex("with 1 ms of latency per message these are faster than ring: "
                                  ".*reduce_broadcast below 1.8[89] kB"));
  EXPECT_THAT(text, HasSubstr("ring, by halves: reduce_scatter 4.375 s, all_gather 4.375 s"));
}

TEST(Simulation, OneAlgorithmMessageByMessage) {
  cost::Question question = textbook(Routine::kReduce);
  const auto algorithms = schedule::message_algorithms(Routine::kReduce);
  const auto answer = cost::answer(algorithms.front(), question).or_throw();
  EXPECT_THAT(timeline_text(answer, question.network),
              HasSubstr("binomial: 15 s\n  0 s of latency, 15 s of bandwidth"));
  const auto json = base::parse_json(timeline_json(answer)).or_throw();
  EXPECT_EQ(json["transfers"].size(), 7u);
  EXPECT_EQ(json["transfers"][0].dump(), "[1,0,5000000,0.0,5.0]");
  EXPECT_NEAR(json["seconds"].get<double>(), 15, 1e-9);
}

TEST(Simulation, LongTimelinesAreCut) {
  cost::Question question = textbook(Routine::kBroadcast);
  question.segments = 100;
  for (const auto& algorithm : schedule::message_algorithms(Routine::kBroadcast)) {
    if (algorithm.name != "chain") continue;
    const auto answer = cost::answer(algorithm, question).or_throw();
    EXPECT_THAT(timeline_text(answer, question.network), HasSubstr("... 106 rounds in all"));
  }
}

}  // namespace
}  // namespace hanji::report
