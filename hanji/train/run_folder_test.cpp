#include "hanji/train/run_folder.h"

#include <gtest/gtest.h>

#include "hanji/base/atomic_file.h"
#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::train {
namespace {

namespace fs = std::filesystem;

class RunFolder : public testing::Test {
 protected:
  void write(const char* name, std::string_view content) const {
    ASSERT_TRUE(base::write_file_atomic(out() / name, content).ok());
  }
  fs::path out() const { return folder_.path(); }
  test::TemporaryFolder folder_;
};

TEST_F(RunFolder, KeepsItsPlanUntilTheNextIsWritten) {
  write("plan.json", "first");
  ASSERT_TRUE(reopen_folder(out(), 3).ok());
  EXPECT_EQ(base::read_file(out() / "plan.json").or_throw(), "first");
  EXPECT_EQ(base::read_file(out() / "plan.until_00000003.json").or_throw(), "first");
}

TEST_F(RunFolder, LosesTheSummaryAndWhatAKilledProcessHadNotFinished) {
  write("summary.json", "{}");
  write("notes", "the user's");
  const auto unfinished = base::AtomicFile::create(out() / "ranks.json").or_throw();
  ASSERT_TRUE(reopen_folder(out(), 0).ok());
  EXPECT_EQ(base::list_files(out()).or_throw(), std::vector{out() / "notes"});
}

TEST_F(RunFolder, HasItsPartsWhenItIsLockedAndOneOwner) {
  const auto lock = lock_folder(out());
  ASSERT_TRUE(lock.ok());
  for (const char* part : kTrainParts) EXPECT_TRUE(fs::is_directory(out() / part)) << part;
  EXPECT_EQ(lock_folder(out()).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace hanji::train
