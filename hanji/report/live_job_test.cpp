#include "hanji/report/live_job.h"

#include <gmock/gmock.h>

#include "hanji/base/file.h"
#include "hanji/base/text.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::report {
namespace {

using testing::HasSubstr;
using testing::Not;

StepAccount account_of(int64_t step) {
  return {.step = step,
          .seconds = 0.1,
          .data = 0.01,
          .exposed_transfer = 0.02,
          .skew = 0.03,
          .cpu = 0.09,
          .memory_bytes = 3 << 20};
}

LiveJob job_of(int ranks) {
  LiveJob job{.name = "/runs/1", .what = "nano, 4 ranks", .num_steps = 100};
  for (int rank = 0; rank < ranks; ++rank) {
    job.ranks.push_back({.rank = rank,
                         .state = "R",
                         .step = 40 + rank % 2,
                         .phase = "backward",
                         .call = "all_reduce, 12.0 ms ago",
                         .resident_bytes = int64_t{90} << 20,
                         .recent = account_of(40)});
  }
  return job;
}

TEST(LiveJob, ShowsStepPaceSharesMemoryAndCall) {
  const std::string page = live_page(job_of(2), 120);
  EXPECT_THAT(page, HasSubstr("step     40 of 100, 100 ms each, 10 per second, 6.00 s left"));
  EXPECT_THAT(page, testing::ContainsRegex(
                        "0 +R +40 +40 % +10 % +20 % +30 % +90 % +3.15 MB +94.4 MB +backward "
                        "+all_reduce, 12.0 ms ago"));
  EXPECT_THAT(page, Not(HasSubstr("verdict")));
}

TEST(LiveJob, AVerdictIsShownAboveTheRanks) {
  LiveJob job = job_of(2);
  job.verdict = "rank 1 (process 7) is stopped";
  EXPECT_THAT(live_page(job), HasSubstr("verdict  rank 1 (process 7) is stopped\n"));
}

TEST(LiveJob, WhatIsNotRecordedIsNoZero) {
  LiveJob job{.name = "process 7", .ranks = {{.rank = 0, .state = "S"}}};
  const std::string page = live_page(job);
  EXPECT_THAT(page, HasSubstr("step     not recorded\n"));
  EXPECT_THAT(page, testing::ContainsRegex("0 +S +- +- +- +- +- +- +- +-"));
}

TEST(LiveJob, FitsTheTerminalAndShowsFirstWhatDoesNotRun) {
  LiveJob job = job_of(64);
  job.ranks[50].state = "T";
  for (const int columns : {40, 80, 200}) {
    const std::string page = live_page(job, columns, 20);
    const auto lines = base::split(page, '\n');
    EXPECT_LE(lines.size(), 21u) << page;
    for (const std::string_view line : lines) {
      EXPECT_LE(static_cast<int>(line.size()), columns) << line;
    }
    EXPECT_THAT(page, testing::ContainsRegex("50 +T"));
    EXPECT_THAT(page, HasSubstr("ranks more"));
  }
}

TEST(RecentAccount, IsTheSumOfTheLastLinesOfARun) {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / "rank.0.jsonl";
  std::string text = "{\"format\":1}\n";
  for (int64_t step = 1; step <= 1000; ++step) text += to_json(account_of(step)) + "\n";
  ASSERT_TRUE(base::write_file_atomic(file, text + "{\"step\":").ok());
  const auto recent = recent_account(file, 5);
  ASSERT_TRUE(recent.has_value());
  EXPECT_EQ(recent->step, 1000);
  EXPECT_EQ(recent->steps, 5);
  EXPECT_NEAR(recent->seconds, 0.5, 1e-9);
}

TEST(RecentAccount, EndsAtTheHeadingOfAResumption) {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / "rank.0.jsonl";
  const std::string text =
      to_json(account_of(7)) + "\n{\"format\":1}\n" + to_json(account_of(5)) + "\n";
  ASSERT_TRUE(base::write_file_atomic(file, text).ok());
  EXPECT_EQ(recent_account(file)->steps, 1);
  ASSERT_TRUE(base::write_file_atomic(file, "{\"format\":1}\n").ok());
  EXPECT_FALSE(recent_account(file).has_value());
  EXPECT_FALSE(recent_account(folder.path() / "none").has_value());
}

}  // namespace
}  // namespace hanji::report
