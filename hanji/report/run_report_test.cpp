#include "hanji/report/run_report.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/report/test_run.h"

namespace hanji::report {
namespace {

using test_run::make;
using test_run::Own;
using testing::HasSubstr;

RunRecords slow_third(int ranks) {
  return make({.ranks = ranks,
               .own = [](int rank, int64_t) { return Own{.compute = rank == 3 ? 0.13 : 0.1}; }});
}

TEST(RunReport, FitsFortyLinesOfEightyColumns) {
  for (const int ranks : {4, 8, 16}) {
    const std::string text = run_report(slow_third(ranks));
    const auto lines = base::split(text, '\n');
    EXPECT_LE(lines.size(), 41u) << text;
    for (const std::string_view line : lines) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(RunReport, FitsFortyLinesHoweverManyAxesAndCalls) {
  RunRecords run = slow_third(16);
  run.folder = "/a/folder/with/a/rather/long/name/of/some/sixty/characters/runs/17";
  run.summary = R"({"train_loss":1.5,"validation_loss":2.5,"skipped_steps":2,"peak_bytes":[1048576],
      "checkpoint":{"saves":3,"failed_saves":1,"blocked_seconds_median":0.01}})";
  run.log.resumptions = {{.step = 10, .ranks = 4}};
  run.log.warnings = {{.step = 11, .text = "slow disk"}};
  for (RankSteps& rank : run.ranks) {
    for (StepAccount& one : rank.accounts) {
      for (const char* axis : {"peers", "tp", "pp", "cp"})
        one.axes.push_back({axis, 1, 1, 0.1, 0.1});
      for (const char* call : {"send", "broadcast", "all_gather", "all_to_all", "reduce"}) {
        one.calls.push_back({call, 1, 1, 0.01});
      }
    }
  }
  const std::string text = run_report(run);
  EXPECT_LE(base::split(text, '\n').size(), 41u) << text;
  EXPECT_THAT(text, HasSubstr("all_reduce"));
  EXPECT_THAT(text, HasSubstr("planned"));
}

TEST(RunReport, SaysTheVerdictAndTheSecondsByRankAxisAndCall) {
  const std::string text = run_report(slow_third(4));
  EXPECT_THAT(text, HasSubstr("verdict      rank 3 computes 29.7 % longer than the others"));
  EXPECT_THAT(text, HasSubstr("wait for it in"));
  EXPECT_THAT(text, testing::ContainsRegex("rank +step +compute +samples +bytes +waits +CPU"));
  EXPECT_THAT(text, testing::ContainsRegex("data +2 +1.05 MB +200 us +2"));
  EXPECT_THAT(text, testing::ContainsRegex("all_reduce +2 +1.05 MB +.* ms +for rank 3, 2"));
}

TEST(RunReport, OfManyRanksTheSlowOneIsShown) {
  EXPECT_THAT(run_report(slow_third(16)),
              testing::ContainsRegex(" +3 +1[23][0-9] ms +1[23][0-9] ms"));
  EXPECT_THAT(run_report(slow_third(16)), HasSubstr("and 8 ranks more"));
}

TEST(RunReport, WhatIsUnknownIsNotZero) {
  RunRecords run = slow_third(4);
  for (RankSteps& rank : run.ranks) {
    for (StepAccount& one : rank.accounts) {
      one.skew = one.exposed_transfer = one.transfer = std::nullopt;
      one.axes = {{"data", 2, 1 << 20}};
    }
  }
  const std::string text = run_report(run);
  EXPECT_THAT(text, testing::ContainsRegex("data +2 +1.05 MB +unknown +unknown"));
  EXPECT_THAT(text, HasSubstr("verdict      not measured"));
}

TEST(RunReport, JsonHasTheSameInSeconds) {
  const auto json = base::parse_json(run_report_json(slow_third(4)));
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  EXPECT_EQ((*json)["format"], kReportFormat);
  EXPECT_EQ((*json)["verdict"]["cause"], "slow_rank");
  EXPECT_EQ((*json)["verdict"]["rank"], 3);
  EXPECT_EQ((*json)["by_rank"].size(), 4u);
  EXPECT_EQ((*json)["by_axis"][0]["axis"], "data");
  EXPECT_NEAR((*json)["by_rank"][0]["forward"].get<double>(), 0.1 / 3, 0.003);
  EXPECT_NEAR((*json)["by_rank"][0]["backward"].get<double>(), 0.2 / 3, 0.007);
  EXPECT_NEAR((*json)["by_rank"][0]["other"].get<double>(), 0, 1e-9) << "they are all of it";
}

TEST(RunReport, JsonSaysNullForWhatWasNotMeasured) {
  const auto json = base::parse_json(run_report_json(slow_third(4))).or_throw();
  EXPECT_TRUE(json["outcome"]["train_loss"].is_null()) << "the run has not ended";
  EXPECT_TRUE(json["checkpoints"].is_null());
  EXPECT_TRUE(json["memory"]["peak_bytes"].is_null());
  EXPECT_TRUE(json["rate"]["of_peak"].is_null()) << "no table has this machine's processors";
  EXPECT_TRUE(json["certificate"].is_null());
}

TEST(RunReport, SaysHowARunEnded) {
  RunRecords run = slow_third(4);
  run.summary =
      R"({"train_loss":1.5,"validation_loss":2.5,"skipped_steps":2,"peak_bytes":[1048576,2097152],
      "checkpoint":{"saves":3,"failed_saves":1,"blocked_seconds_median":0.01}})";
  run.log.resumptions = {{.step = 10, .ranks = 4}};
  run.log.warnings = {{.step = 11, .text = "slow disk"}};
  const std::string text = run_report(run);
  EXPECT_THAT(text, HasSubstr("train loss 1.5000  validation 2.5000  2 steps skipped"));
  EXPECT_THAT(text, testing::ContainsRegex("resumed 1\\s+time"));
  EXPECT_THAT(text, HasSubstr("1 warning"));
  EXPECT_THAT(text, HasSubstr("3 checkpoints"));
  EXPECT_THAT(text, HasSubstr("memory       2.10 MB of tensors at most on a rank"));
  EXPECT_LE(base::split(text, '\n').size(), 41u) << text;
  const auto json = base::parse_json(run_report_json(run)).or_throw();
  EXPECT_EQ(json["outcome"]["warnings"][0]["warning"], "slow disk");
  EXPECT_EQ(json["checkpoints"]["failed"], 1);
}

}  // namespace
}  // namespace hanji::report
