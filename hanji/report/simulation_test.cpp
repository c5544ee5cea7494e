#include "hanji/report/simulation.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"
#include "hanji/report/collective_cost.h"

namespace hanji::report {
namespace {

using schedule::Routine;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

cost::Question textbook_question(Routine routine) {
  cost::Question question;
  question.routine = routine;
  question.bytes = 5'000'000;
  question.ranks = 8;
  question.network.bytes_per_second = 1e6;
  return question;
}

TEST(Simulation, PrintsTheBroadcastOfTheTextbook) {
  const std::string text = simulation_text(textbook_question(Routine::kBroadcast)).or_throw();
  EXPECT_THAT(text, ContainsRegex("one_by_one +35 s"));
  EXPECT_THAT(text, ContainsRegex("all_at_once +35 s"));
  EXPECT_THAT(text, HasSubstr("5.00 MB at 143 kB/s each; then 7 others served"));
  EXPECT_THAT(text, ContainsRegex("binomial +15 s"));
  EXPECT_THAT(text, ContainsRegex("at      0 s  0->4 .*then 1 other served"));
  EXPECT_THAT(text, ContainsRegex("at      5 s  0->2, 4->6 .*then 3 others served"));
  EXPECT_THAT(text, ContainsRegex("at     10 s  0->1, 2->3, 4->5, 6->7 .*then 7 others served"));
  EXPECT_THAT(text, ContainsRegex("scatter_all_gather +8.75 s"));
  EXPECT_THAT(text, HasSubstr("chain by segments k: 35 s with 1, 11 s with 5, 5.6 s with 50"));
}

TEST(Simulation, PrintsTheAllReduceOfTheTextbook) {
  const std::string text = simulation_text(textbook_question(Routine::kAllReduce)).or_throw();
  EXPECT_THAT(text, ContainsRegex("reduce_broadcast +30 s"));
  EXPECT_THAT(text, HasSubstr("1->0, 3->2, 5->4, 7->6"));
  EXPECT_THAT(text, HasSubstr("2->0, 6->4 "));
  // 6 (a + S b) = 14 a + 7/4 S b at S = 1882 bytes.
  EXPECT_THAT(text, ContainsRegex("with 1 ms of latency per message these are faster than ring: "
                                  ".*reduce_broadcast below 1.8[89] kB"));
  EXPECT_THAT(text, HasSubstr("ring, by halves: reduce_scatter 4.375 s, all_gather 4.375 s"));
}

TEST(Simulation, OneAlgorithmMessageByMessage) {
  cost::Question question = textbook_question(Routine::kReduce);
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
  cost::Question question = textbook_question(Routine::kBroadcast);
  question.segments = 100;
  for (const auto& algorithm : schedule::message_algorithms(Routine::kBroadcast)) {
    if (algorithm.name != "chain") continue;
    const auto answer = cost::answer(algorithm, question).or_throw();
    EXPECT_THAT(timeline_text(answer, question.network), HasSubstr("... 106 rounds in all"));
  }
}

TEST(Simulation, OfManyRanksTellsOneRanksRoundsAndWhatIsLeftOut) {
  cost::Question question = textbook_question(Routine::kBroadcast);
  question.ranks = 1000;
  const std::string text = simulation_text(question).or_throw();
  // 10 messages of a half, a quarter, ... and 999 of a slice of 5000 bytes.
  EXPECT_THAT(text, ContainsRegex("scatter_all_gather +9\\.9[0-9]* s +1009 "));
  EXPECT_THAT(text, ContainsRegex("double_tree, 50 segments +[0-9.]+ s "));
  EXPECT_THAT(text,
              HasSubstr("not compared by size: double_tree in 200 segments has 799201 steps"));
  EXPECT_THAT(text, Not(HasSubstr("double_tree below")));
  const auto json = base::parse_json(to_json(cost_on_network(question).or_throw())).or_throw();
  EXPECT_EQ(json["left_out"].dump(), R"([{"name":"double_tree","steps":799201}])");
  EXPECT_EQ(json["algorithms"].size(), 6u);
  question.ranks = 10'000;
  question.routine = Routine::kAllGather;
  const auto ring = schedule::message_algorithms(Routine::kAllGather).front();
  const auto answer = cost::answer(ring, question).or_throw();
  EXPECT_THAT(timeline_text(answer, question.network),
              ContainsRegex("at      0 s  500 B of each rank that has a message\n(.*\n)+"
                            "  ... 9999 rounds in all"));
  const auto path = base::parse_json(timeline_json(answer)).or_throw();
  EXPECT_EQ(path["longest_path"].size(), 9999u);
  EXPECT_FALSE(path.contains("transfers"));
}

}  // namespace
}  // namespace hanji::report
