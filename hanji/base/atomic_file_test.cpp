#include "hanji/base/atomic_file.h"

#include <gmock/gmock.h>

#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::base {
namespace {

std::span<const std::byte> raw_text(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(AtomicFile, WritesAnywhereWithZerosBetween) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  auto file = AtomicFile::create(path).or_throw();
  ASSERT_TRUE(file.write_at(4, raw_text("end")).ok());
  ASSERT_TRUE(file.write_at(0, raw_text("ab")).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(read_file(path).or_throw(), std::string("ab\0\0end", 7));
}

TEST(AtomicFile, LeavesTheOldFileAndNoOtherUnlessItIsCommitted) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  ASSERT_TRUE(write_file_atomic(path, "old").ok());
  {
    auto file = AtomicFile::create(path).or_throw();
    const AtomicFile moved = std::move(file);
  }
  EXPECT_EQ(read_file(path).or_throw(), "old");
  EXPECT_EQ(list_files(folder.path()).or_throw().size(), 1);
}

TEST(AtomicFile, AResumedFileKeepsWhatWasWrittenUntilItIsCommitted) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  {
    auto file = AtomicFile::resume(path).or_throw();
    ASSERT_TRUE(file.write_at(0, raw_text("abcdef")).ok());
    EXPECT_THAT(AtomicFile::resume(path).status().message(),
                testing::HasSubstr("another process writes this file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  auto file = AtomicFile::resume(path).or_throw();
  ASSERT_TRUE(file.truncate(4).ok());
  ASSERT_TRUE(file.write_at(3, raw_text("D")).ok());
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(read_file(path).or_throw(), "abcD");
  EXPECT_EQ(list_files(folder.path()).or_throw().size(), 1);
}

TEST(AtomicFile, ADiscardedFileLeavesNothing) {
  const test::TemporaryFolder folder;
  AtomicFile::resume(folder.path() / "file").or_throw().discard();
  EXPECT_TRUE(list_files(folder.path()).or_throw().empty());
}

TEST(AtomicFile, RejectsAFolderThatDoesNotExist) {
  EXPECT_EQ(AtomicFile::create("/nowhere/file").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace hanji::base
