#include "hanji/checkpoint/folder.h"

#include <gmock/gmock.h>

#include "hanji/checkpoint/internal/test_state.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::checkpoint {
namespace {

namespace fs = std::filesystem;

TEST(ListCheckpoints, KnowsItsNamesOnlyAndSortsThem) {
  const test::TemporaryFolder temporary;
  for (const char* name : {"step_00000010", "step_00000002", "step_123456789", "step_7", "other",
                           "step_0000000x", ".saving-step_00000003", "step_-0000001"}) {
    fs::create_directory(temporary.path() / name);
  }
  internal::write_bytes(temporary.path() / "step_00000004", "a file");
  std::vector<int64_t> steps;
  for (const Entry& entry : list_checkpoints(temporary.path()).or_throw())
    steps.push_back(entry.step);
  EXPECT_THAT(steps, testing::ElementsAre(2, 10, 123456789));
}

TEST(ListCheckpoints, ShowsTheOneThatWasSetAside) {
  const test::TemporaryFolder temporary;
  fs::create_directory(temporary.path() / ".replaced-step_00000003");
  const auto entries = list_checkpoints(temporary.path());
  ASSERT_EQ(entries->size(), 1u);
  EXPECT_EQ(entries->front().path.filename(), ".replaced-step_00000003");
  fs::create_directory(temporary.path() / "step_00000003");
  EXPECT_EQ(list_checkpoints(temporary.path())->front().path.filename(), "step_00000003");
}

TEST(Sweep, RemovesWhatIsHalfAndPutsBackWhatIsWhole) {
  const test::TemporaryFolder temporary;
  for (const char* name : {".saving-step_00000003", ".removing-step_00000001",
                           ".replaced-step_00000002", ".replaced-step_00000005", "step_00000005"}) {
    fs::create_directory(temporary.path() / name);
  }
  ASSERT_TRUE(sweep(temporary.path()).ok());
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(temporary.path())) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("step_00000002", "step_00000005"));
}

TEST(LatestStep, IsWhatWasSet) {
  const test::TemporaryFolder temporary;
  EXPECT_EQ(latest_step(temporary.path()), -1);
  ASSERT_TRUE(set_latest(temporary.path(), 20).ok());
  EXPECT_EQ(internal::read_bytes(temporary.path() / "latest"), "step_00000020\n");
  EXPECT_EQ(latest_step(temporary.path()), 20);
}

}  // namespace
}  // namespace hanji::checkpoint
