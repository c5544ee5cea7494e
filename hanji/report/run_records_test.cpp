#include "hanji/report/run_records.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "hanji/base/file.h"
#include "hanji/report/test_run.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::report {
namespace {

using testing::HasSubstr;

class RunRecordsTest : public testing::Test {
 protected:
  RunRecordsTest() {
    std::filesystem::create_directories(folder_.path() / kAccountFolder);
    std::ofstream(folder_.path() / "plan.json") << plan::to_json(test_run::plan_of({.ranks = 2}));
  }
  void add(int rank, const std::string& text) {
    std::ofstream(folder_.path() / account_file(rank), std::ios::app) << text;
  }
  static std::string begin(int rank, int64_t first_step) {
    return fmt::format("{{\"format\":1,\"rank\":{},\"ranks\":2,\"first_step\":{}}}\n", rank,
                       first_step);
  }
  static std::string line(int64_t step, double seconds) {
    return to_json(StepAccount{.step = step, .seconds = seconds}) + "\n";
  }
  std::string refusal() { return read_run(folder_.path()).status().message(); }

  test::TemporaryFolder folder_;
};

TEST_F(RunRecordsTest, AResumedRunReplacesTheStepsThatItDoesAgain) {
  add(0, begin(0, 0) + line(1, 1) + line(2, 2) + line(3, 3) + begin(0, 1) + line(2, 20));
  const RunRecords run = read_run(folder_.path()).or_throw();
  ASSERT_EQ(run.ranks.size(), 1u);
  ASSERT_EQ(run.ranks[0].accounts.size(), 2u);
  EXPECT_EQ(run.ranks[0].accounts[1].seconds, 20);
}

TEST_F(RunRecordsTest, StepsOfAnotherNumberOfRanksDoNotCount) {
  add(0, "{\"format\":1,\"rank\":0,\"ranks\":4,\"first_step\":0}\n" + line(1, 1) + line(2, 2) +
             begin(0, 2) + line(3, 3));
  const RunRecords run = read_run(folder_.path()).or_throw();
  ASSERT_EQ(run.ranks[0].accounts.size(), 1u);
  EXPECT_EQ(run.ranks[0].accounts[0].step, 3);
}

TEST_F(RunRecordsTest, ALineThatAKilledRankLeftOpenIsDropped) {
  add(1, begin(1, 0) + line(1, 1) + line(2, 2).substr(0, 20));
  const RunRecords run = read_run(folder_.path()).or_throw();
  EXPECT_EQ(run.ranks[0].rank, 1);
  EXPECT_EQ(run.ranks[0].accounts.size(), 1u);
}

TEST_F(RunRecordsTest, WrongLinesAreNamed) {
  add(0, begin(0, 0) + line(1, 1) + "{\"step\":2}\n");
  EXPECT_THAT(refusal(), HasSubstr("rank.0.jsonl:3: steps is missing"));
}

TEST_F(RunRecordsTest, AFileOfAnotherRankOrFormatIsRefused) {
  add(1, begin(0, 0));
  EXPECT_THAT(refusal(), HasSubstr("rank.1.jsonl:1: it is of another rank"));
  std::filesystem::remove(folder_.path() / account_file(1));
  add(0, "{\"format\":9,\"rank\":0}\n");
  EXPECT_THAT(refusal(), HasSubstr("the format is not 1"));
}

TEST_F(RunRecordsTest, AFolderWithoutAPlanIsRefusedWithTheKey) {
  std::filesystem::remove(folder_.path() / "plan.json");
  EXPECT_THAT(refusal(), HasSubstr("name the folder of a run, which is run.out"));
}

TEST_F(RunRecordsTest, TheWholeRunHasItsLogCertificateAndLastFailureToo) {
  std::filesystem::create_directories(folder_.path() / "logs");
  for (const char* file : {"run.jsonl", "certificate.json", "logs/flight.json"}) {
    const std::string content = "{\"step\":1,\"loss\":2}\n";
    ASSERT_TRUE(base::write_file_atomic(folder_.path() / file, content).ok());
  }
  const RunRecords whole = read_whole_run(folder_.path()).or_throw();
  EXPECT_EQ(whole.log.train_losses.size(), 1u);
  EXPECT_FALSE(whole.certificate.empty());
  EXPECT_FALSE(whole.flight.empty());
  EXPECT_TRUE(read_run(folder_.path()).or_throw().log.train_losses.empty())
      << "a verdict at the end of a long run does not read all of its log";
}

}  // namespace
}  // namespace hanji::report
