#include "hanji/checkpoint/save.h"

#include <gmock/gmock.h>

#include "hanji/checkpoint/folder.h"
#include "hanji/checkpoint/internal/test_state.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::checkpoint {
namespace {

using internal::TestState;
using testing::ElementsAre;
using testing::HasSubstr;

class SaveCheckpoint : public testing::Test {
 protected:
  Status save(int64_t step, std::optional<double> loss = {}, int keep = 3, bool best = true) {
    return save_checkpoint({.folder = temporary_.path(), .keep = keep, .keep_best = best},
                           state_.state(), {.step = step, .validation_loss = loss});
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> steps;
    for (const Entry& entry : list_checkpoints(temporary_.path()).or_throw()) {
      steps.push_back(entry.step);
    }
    return steps;
  }

  test::TemporaryFolder temporary_{internal::folder_in_memory()};
  TestState state_{1};
};

TEST_F(SaveCheckpoint, ReturnsWhatWasGiven) {
  const Manifest manifest{.step = 20,
                          .num_samples = 240,
                          .job = R"({"seed":7})",
                          .plan = R"({"ranks":2})",
                          .state_hash = "ab",
                          .validation_loss = 1.25};
  ASSERT_TRUE(
      save_checkpoint({.folder = temporary_.path() / "a" / "b"}, state_.state(), manifest).ok());
  const auto loaded = load_checkpoint(temporary_.path() / "a" / "b");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->path.filename(), "step_00000020");
  EXPECT_TRUE(holds(*loaded, state_));
  EXPECT_EQ(loaded->manifest.num_samples, 240);
  EXPECT_EQ(loaded->manifest.job, manifest.job);
  EXPECT_EQ(loaded->manifest.plan, manifest.plan);
  EXPECT_EQ(loaded->manifest.state_hash, "ab");
  EXPECT_EQ(loaded->manifest.validation_loss, 1.25);
}

TEST_F(SaveCheckpoint, KeepsTheLastAndTheBest) {
  const std::vector<double> losses = {5, 2, 3, 4, 4, 4};
  for (size_t i = 0; i < losses.size(); ++i) {
    ASSERT_TRUE(save(static_cast<int64_t>(i + 1), losses[i]).ok());
  }
  EXPECT_THAT(steps(), ElementsAre(2, 4, 5, 6));
}

TEST_F(SaveCheckpoint, KeepsOnlyTheLastWhenTold) {
  for (int64_t step = 1; step <= 4; ++step) {
    ASSERT_TRUE(save(step, static_cast<double>(step), 2, false).ok());
  }
  EXPECT_THAT(steps(), ElementsAre(3, 4));
}

TEST_F(SaveCheckpoint, AnAbandonedFutureGoesFirst) {
  for (const int64_t step : {10, 20, 30}) ASSERT_TRUE(save(step).ok());
  ASSERT_TRUE(save(15).ok());  // After a return to step 10.
  EXPECT_THAT(steps(), ElementsAre(10, 15, 30));
  EXPECT_EQ(latest_step(temporary_.path()), 15);
  ASSERT_TRUE(save(17).ok());
  EXPECT_THAT(steps(), ElementsAre(10, 15, 17));
}

TEST_F(SaveCheckpoint, ReplacesACheckpointOfTheSameStep) {
  ASSERT_TRUE(save(5).ok());
  const TestState other(2);
  ASSERT_TRUE(save_checkpoint({.folder = temporary_.path()}, other.state(), {.step = 5}).ok());
  const auto loaded = load_checkpoint(temporary_.path());
  ASSERT_TRUE(loaded.ok());
  EXPECT_TRUE(holds(*loaded, other));
  EXPECT_THAT(steps(), ElementsAre(5));
}

TEST_F(SaveCheckpoint, RefusesWhatMakesNoSense) {
  EXPECT_EQ(save(1, {}, 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(save(-1).code(), Code::kInvalidArgument);
  EXPECT_EQ(save(1, std::nan("")).code(), Code::kInvalidArgument);
  const Status status =
      save_checkpoint({.folder = temporary_.path()}, state_.state(), {.step = 1, .job = "{"});
  EXPECT_THAT(status.message(), HasSubstr("job must be a JSON object"));
  EXPECT_TRUE(steps().empty());
}

}  // namespace
}  // namespace hanji::checkpoint
