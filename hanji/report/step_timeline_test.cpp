#include "hanji/report/step_timeline.h"

#include <gmock/gmock.h>

#include "hanji/base/file.h"
#include "hanji/report/test_run.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::report {
namespace {

using testing::HasSubstr;

RunRecords with_slow_step(int64_t slow) {
  return test_run::make({.ranks = 2, .own = [slow](int, int64_t step) {
                           return test_run::Own{.compute = step == slow ? 0.3 : 0.1};
                         }});
}

/// One step, from 1 s to 1.1 s, with a wait in its backward and an event of another step.
std::string trace_of(int64_t step) {
  const std::string s = std::to_string(step - 1);
  return "{\"traceEvents\":[\n"
         R"({"ph":"X","name":"forward","ts":1000000,"dur":40000,"args":{"category":"compute","step":)" +
         s +
         "}},\n"
         R"({"ph":"X","name":"backward","ts":1040000,"dur":60000,"args":{"category":"compute","step":)" +
         s +
         "}},\n"
         R"({"ph":"X","name":"waiting for rank 1","ts":1050000,"dur":20000,"args":{"category":"skew","step":)" +
         s +
         "}},\n"
         R"({"ph":"X","name":"optimizer","ts":1000000,"dur":40000,"args":{"category":"compute","step":)" +
         s +
         "7}},\n"
         R"({"ph":"X","name":"ProfilerStep#)" +
         s + R"(","ts":1000000,"dur":100000,"args":{"category":"step","step":)" + s + "}}\n]}\n";
}

TEST(StepTimeline, IsOfTheMedianAndTheSlowestStep) {
  const auto timelines = read_timelines(with_slow_step(7));
  ASSERT_EQ(timelines.size(), 2u);
  EXPECT_FALSE(timelines[0].is_slowest);
  EXPECT_NEAR(timelines[0].seconds, 0.1, 0.01);
  EXPECT_EQ(timelines[1].step, 7);
  EXPECT_NEAR(timelines[1].seconds, 0.3, 0.03);
}

TEST(StepTimeline, WarmingUpIsNeitherOfThem) {
  for (const StepTimeline& one : read_timelines(with_slow_step(1))) EXPECT_NE(one.step, 1);
}

TEST(StepTimeline, WithoutTraceHasThePartsOfTheAccountsAndSaysWhy) {
  const StepTimeline one = read_timelines(with_slow_step(7)).at(0);
  EXPECT_FALSE(one.is_traced);
  EXPECT_THAT(one.note, HasSubstr("rank.0.json is not there"));
  ASSERT_EQ(one.ranks.size(), 2u);
  EXPECT_NEAR(one.ranks[0].spans.back().end, one.seconds, 1e-3);
}

TEST(StepTimeline, IsCutFromTheTracesOfAllRanks) {
  const test::TemporaryFolder folder;
  RunRecords run = with_slow_step(7);
  run.folder = folder.path();
  std::filesystem::create_directories(folder.path() / "trace");
  for (const int rank : {0, 1}) {
    const auto path = folder.path() / "trace" / ("rank." + std::to_string(rank) + ".json");
    ASSERT_TRUE(base::write_file_atomic(path, trace_of(7)).ok());
  }
  const StepTimeline one = read_timelines(run).at(1);
  ASSERT_TRUE(one.is_traced) << one.note;
  EXPECT_NEAR(one.seconds, 0.1, 1e-9);
  ASSERT_EQ(one.ranks[0].spans.size(), 3u);
  EXPECT_EQ(one.ranks[0].spans[1].kind, SpanKind::kBackward);
  EXPECT_NEAR(one.ranks[0].spans[1].begin, 0.04, 1e-9);
  EXPECT_EQ(one.ranks[0].spans[2].kind, SpanKind::kSkew);
  EXPECT_THAT(read_timelines(run).at(0).note, HasSubstr("no more"));
}

TEST(StepTimeline, RanksOfOtherHostsLieWhereTheirClocksWereAligned) {
  const test::TemporaryFolder folder;
  RunRecords run = with_slow_step(7);
  run.folder = folder.path();
  run.plan.hosts.ranks = {1, 1};
  std::filesystem::create_directories(folder.path() / "trace");
  const auto write = [&](int rank, const std::string& clock) {
    std::string text = trace_of(7);
    text.insert(1, clock);
    if (rank == 1) {  // 5 ms later
      for (const std::string_view from : {"\"ts\":1000000", "\"ts\":1040000", "\"ts\":1050000"}) {
        for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + 1)) {
          text[at + 8] = '5';
        }
      }
    }
    const auto path = folder.path() / "trace" / ("rank." + std::to_string(rank) + ".json");
    ASSERT_TRUE(base::write_file_atomic(path, text).ok());
  };
  write(0, R"("clock":{"of":"this host","error_ns":0},)");
  write(1, R"("clock":{"of":"rank 0","offset_ns":7,"drift_ppm":0.1,"error_ns":200000},)");
  const StepTimeline aligned = read_timelines(run).at(1);
  ASSERT_TRUE(aligned.is_traced) << aligned.note;
  EXPECT_NEAR(aligned.ranks[1].spans[0].begin - aligned.ranks[0].spans[0].begin, 0.005, 1e-9);
  EXPECT_EQ(aligned.note, "the clocks of the hosts agree within 200 us");
  write(1, "");
  const StepTimeline apart = read_timelines(run).at(1);
  EXPECT_EQ(apart.ranks[1].spans[0].begin, 0);
  EXPECT_THAT(apart.note, HasSubstr("do not align"));
}

TEST(StepTimeline, DamagedTraceIsNamedAndTheAccountsStandIn) {
  const test::TemporaryFolder folder;
  RunRecords run = with_slow_step(7);
  run.folder = folder.path();
  std::filesystem::create_directories(folder.path() / "trace");
  const auto path = folder.path() / "trace" / "rank.0.json";
  ASSERT_TRUE(base::write_file_atomic(path, "\n{\"name\":\"ProfilerStep#3\",\"ts\":nul\n").ok());
  const StepTimeline one = read_timelines(run).at(0);
  EXPECT_FALSE(one.is_traced);
  EXPECT_THAT(one.note, HasSubstr("rank.0.json:2"));
}

TEST(StepTimeline, OfManyRanksSomeAreDrawn) {
  RunRecords run = test_run::make({.ranks = 2, .steps = 3});
  for (int rank = 2; rank < 64; ++rank) run.ranks.push_back({rank, run.ranks[0].accounts});
  const StepTimeline one = read_timelines(run).at(0);
  EXPECT_EQ(one.ranks.size(), kMaxTimelineRanks);
  EXPECT_EQ(one.ranks.back().rank, 60);
}

}  // namespace
}  // namespace hanji::report
