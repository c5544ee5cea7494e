#include "hanji/train/run_log.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>

#include "hanji/test/temporary_folder.h"

namespace hanji::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RunLogTest : public testing::Test {
 protected:
  RunLogTest() { plan_.config.train.steps = 100; }
  RunLog open() {
    Output output;
    output.write = [this](std::string_view text) { told_ += text; };
    output.columns = columns_;
    return RunLog::open(folder_.path(), plan_, 0, output).or_throw();
  }
  static StepRecord step(int64_t number) {
    return {.step = number, .loss = 1.5, .step_seconds = 0.1, .num_targets = 64};
  }
  size_t num_warnings() const {
    size_t count = 0;
    for (size_t at = told_.find("warning"); at != told_.npos; at = told_.find("warning", at + 1)) {
      ++count;
    }
    return count;
  }
  fs::path board() const { return folder_.path() / "tensorboard"; }

  test::TemporaryFolder folder_;
  plan::Plan plan_;
  std::string told_;
  int columns_ = base::kTerminalColumns;
};

TEST_F(RunLogTest, TellsTransferAndSkewApart) {
  RunLog log = open();
  StepRecord record = step(1);
  record.calls = {.transfer = 0.02, .exposed_transfer = 0.01, .skew = 0.04};
  log.step(record);
  log.step(step(100));  // by an engine that cannot tell
  log.flush();
  EXPECT_THAT(told_, HasSubstr("  10.0% transfer  40.0% skew  ETA"));
  EXPECT_THAT(told_.substr(told_.find("step 100/100")), testing::Not(HasSubstr("skew")));
  const History history = rewind_log(folder_.path() / "run.jsonl", 100).or_throw();
  ASSERT_EQ(history.logged.size(), 2u);
  EXPECT_EQ(history.logged[0].calls, record.calls);
  EXPECT_FALSE(history.logged[1].calls.has_value());
}

TEST_F(RunLogTest, ALineThatIsTooLongLeavesOutWhatIsLeastAskedFor) {
  RunLog log = open();
  StepRecord record = step(1);
  record.calls = {.transfer = 0.02, .exposed_transfer = 0.01, .skew = 0.04};
  log.step(record);
  EXPECT_THAT(told_, testing::EndsWith("640 tokens/s  10.0% transfer  40.0% skew  ETA 9.90 s\n"));
  EXPECT_LE(told_.size(), 81U);
  columns_ = 120;
  told_.clear();
  RunLog wide = open();
  wide.step(record);
  EXPECT_THAT(told_, HasSubstr(" GF/s  0 B  10.0% transfer  40.0% skew  ETA "));
}

TEST_F(RunLogTest, ADeletedTensorBoardFolderIsMadeAgain) {
  RunLog log = open();
  log.step(step(1));
  fs::remove_all(board());
  log.step(step(2));
  log.step(step(3));
  EXPECT_THAT(told_, HasSubstr("step 2  warning: the tensorboard folder was deleted"));
  EXPECT_EQ(num_warnings(), 1u);
  EXPECT_EQ(std::distance(fs::directory_iterator(board()), fs::directory_iterator()), 1);
}

TEST_F(RunLogTest, AFolderThatCannotBeMadeAgainIsGivenUp) {
  RunLog log = open();
  fs::remove_all(board());
  std::ofstream(board()) << "a file in its place";
  for (int64_t number = 1; number <= 3; ++number) log.step(step(number));
  log.flush();
  EXPECT_THAT(told_, HasSubstr("step 1  warning: tensorboard is not written any more, training"));
  EXPECT_EQ(num_warnings(), 1u);
}

TEST_F(RunLogTest, AFullDiskIsToldOncePerFile) {
  RunLog log = open();
  const auto before_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit full{1, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &full);
  for (int64_t number = 1; number <= 3; ++number) log.step(step(number));
  log.evaluation(3, 2.5);
  log.warning(3, "something else");
  log.flush();
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, before_handler);
  EXPECT_THAT(told_,
              HasSubstr("step 1  warning: run.jsonl is not written any more, training goes"));
  EXPECT_THAT(told_, HasSubstr("step 1  warning: tensorboard is not written any more"));
  EXPECT_THAT(told_, HasSubstr("validation loss 2.5"));
  EXPECT_THAT(told_, HasSubstr("step 3  warning: something else"));
  EXPECT_EQ(num_warnings(), 3u);
}

}  // namespace
}  // namespace hanji::train
