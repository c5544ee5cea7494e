#include "hanji/train/history.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "hanji/test/temporary_folder.h"

namespace hanji::train {
namespace {

class RewindLog : public testing::Test {
 protected:
  std::filesystem::path path() const { return folder_.path() / "run.jsonl"; }
  void write(const std::string& text) const { std::ofstream(path()) << text; }
  std::string read() const {
    std::ostringstream out;
    out << std::ifstream(path()).rdbuf();
    return out.str();
  }
  static std::string step(int number) {
    const std::string n = std::to_string(number);
    return R"({"step":)" + n + R"(,"loss":)" + n + R"(.5,"step_seconds":0.1,"ranks":2})" + "\n";
  }
  test::TemporaryFolder folder_;
};

TEST_F(RewindLog, OfARunThatNeverBeganIsEmpty) {
  const auto history = rewind_log(path(), 0);
  ASSERT_TRUE(history.ok());
  EXPECT_FALSE(history->found);
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(RewindLog, DropsLaterStepsAndAnOpenLine) {
  const std::string kept = step(1) + step(2) + R"({"step":2,"validation_loss":2.25})" + "\n";
  write(kept + step(3) + R"({"step":4,"lo)");
  const auto history = rewind_log(path(), 2);
  ASSERT_TRUE(history.ok()) << history.status().message();
  EXPECT_EQ(read(), kept);
  EXPECT_TRUE(history->found);
  EXPECT_EQ(history->logged.size(), 2u);
  EXPECT_EQ(history->logged[0].step, 0.1);
  EXPECT_EQ(history->logged[0].ranks, 2);
  EXPECT_EQ(history->train_loss, 2.5);
  EXPECT_EQ(history->validation_loss, 2.25);
}

TEST_F(RewindLog, ReadsTransferAndSkewAndLogsThatDidNotTellThemApart) {
  write(R"({"step":1,"loss":1,"step_seconds":1,"exposed_communication_seconds":0.5})"
        "\n"
        R"({"step":2,"loss":1,"step_seconds":1,"transfer_seconds":0.25,)"
        R"("exposed_transfer_seconds":0.125,"skew_seconds":0.0625})"
        "\n");
  const auto history = rewind_log(path(), 2);
  ASSERT_TRUE(history.ok());
  ASSERT_EQ(history->logged.size(), 2u);
  EXPECT_FALSE(history->logged[0].calls.has_value());
  EXPECT_EQ(history->logged[1].calls, (CallSeconds{0.25, 0.125, 0.0625}));
}

TEST_F(RewindLog, ToTheBeginKeepsNothing) {
  write(step(1) + step(2));
  ASSERT_TRUE(rewind_log(path(), 0).ok());
  EXPECT_EQ(read(), "");
}

TEST_F(RewindLog, TellsEarlierResumptionsButNotThatOfTheSameStep) {
  const std::string earlier = step(1) + R"({"step":1,"resumed":true,"ranks":3})" + "\n" + step(2);
  write(earlier + R"({"step":2,"resumed":true,"ranks":2})" + "\n" + step(3));
  const auto history = rewind_log(path(), 2);
  ASSERT_TRUE(history.ok());
  EXPECT_EQ(read(), earlier);
  ASSERT_EQ(history->resumptions.size(), 1u);
  EXPECT_EQ(history->resumptions[0].step, 1);
  EXPECT_EQ(history->resumptions[0].ranks, 3);
}

TEST_F(RewindLog, RefusesAFileThatIsNoLog) {
  const std::string text = step(1) + "my notes\n";
  write(text);
  const auto history = rewind_log(path(), 5);
  EXPECT_EQ(history.status().code(), Code::kCorrupt);
  EXPECT_THAT(history.status().message(), testing::HasSubstr("line 2"));
  EXPECT_EQ(read(), text);
}

}  // namespace
}  // namespace hanji::train
