#include "hanji/report/training_log.h"

#include <gmock/gmock.h>

#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::report {
namespace {

TrainingLog read(const std::string& text) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(base::write_file_atomic(folder.path() / "run.jsonl", text).ok());
  return read_training_log(folder.path() / "run.jsonl").or_throw();
}

TEST(TrainingLog, HasCurvesResumptionsAndWarnings) {
  const TrainingLog log = read(R"({"step":1,"loss":4.5,"ranks":2})"
                               "\n"
                               R"({"step":1,"warning":"the disk is slow"})"
                               "\n"
                               R"({"step":1,"validation_loss":4.25,"validation_accuracy":0.5})"
                               "\n"
                               R"({"step":1,"resumed":true,"ranks":3})"
                               "\n");
  ASSERT_EQ(log.train_losses.size(), 1u);
  EXPECT_EQ(log.train_losses[0].value, 4.5);
  EXPECT_EQ(log.validation_losses.at(0).value, 4.25);
  EXPECT_EQ(log.metric_name, "accuracy");
  EXPECT_EQ(log.metrics.at(0).value, 0.5);
  EXPECT_EQ(log.resumptions.at(0).ranks, 3);
  EXPECT_EQ(log.warnings.at(0).text, "the disk is slow");
}

TEST(TrainingLog, StepsWithoutTargetOrFiniteLossAreCountedAndNotDrawn) {
  const TrainingLog log = read(
      "{\"step\":1,\"loss\":0,\"valid_targets\":0}\n{\"step\":2,\"loss\":null}\n"
      "{\"step\":3,\"loss\":1.5}\n");
  EXPECT_EQ(log.train_losses.size(), 1u);
  EXPECT_EQ(log.without_targets, 1);
  EXPECT_EQ(log.not_finite, 1);
}

TEST(TrainingLog, OpenLastLineIsDroppedAndAnotherBadLineIsNamed) {
  EXPECT_EQ(read("{\"step\":1,\"loss\":2}\n{\"step\":2,\"lo").train_losses.size(), 1u);
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  ASSERT_TRUE(base::write_file_atomic(path, "{\"step\":1,\"loss\":2}\nnonsense\n").ok());
  const auto log = read_training_log(path);
  ASSERT_FALSE(log.ok());
  EXPECT_THAT(log.status().message(), testing::HasSubstr("run.jsonl:2"));
}

TEST(TrainingLog, OfNoFileIsEmpty) {
  EXPECT_TRUE(read_training_log("/nowhere/run.jsonl").or_throw().train_losses.empty());
}

}  // namespace
}  // namespace hanji::report
