#include "hanji/base/atomic_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <utility>

#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::base {
namespace {

/// What each fsync of this program is shown to first.
std::function<void(int)>& on_fsync() {
  static std::function<void(int)> visit;
  return visit;
}

/// Each fsync that `work` makes: whether of a folder, and whether `path` was there.
std::vector<std::pair<bool, bool>> fsyncs_of(const std::filesystem::path& path,
                                             const std::function<void()>& work) {
  std::vector<std::pair<bool, bool>> made;
  on_fsync() = [&](int fd) {
    struct stat state {};
    ASSERT_EQ(::fstat(fd, &state), 0);
    made.emplace_back(S_ISDIR(state.st_mode), std::filesystem::exists(path));
  };
  work();
  on_fsync() = {};
  return made;
}

}  // namespace
}  // namespace hanji::base

/// In the place of libc's.
extern "C" int fsync(int fd) {
  if (const auto& visit = hanji::base::on_fsync()) visit(fd);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace hanji::base {
namespace {

using testing::ElementsAre;
using testing::Pair;

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

TEST(AtomicFile, IsOnDiskBeforeItHasItsNameAndItsFolderAfterwards) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  EXPECT_THAT(fsyncs_of(path, [&] { ASSERT_TRUE(write_file_atomic(path, "text").ok()); }),
              ElementsAre(Pair(false, false), Pair(true, true)));
}

TEST(RenameAndSync, PutsBothFoldersOnDiskAfterwards) {
  const test::TemporaryFolder folder;
  const auto from = folder.path() / "from", to = folder.path() / "to";
  for (const auto& one : {from, to}) ASSERT_TRUE(make_directories(one).ok());
  ASSERT_TRUE(make_directories(from / "saved").ok());
  EXPECT_THAT(fsyncs_of(to / "saved",
                        [&] { ASSERT_TRUE(rename_and_sync(from / "saved", to / "saved").ok()); }),
              ElementsAre(Pair(true, true), Pair(true, true)));
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

TEST(AtomicFile, KnowsWhatAKilledProcessHasLeft) {
  const test::TemporaryFolder folder;
  for (const char* name : {"plan.json", "file"}) {
    const auto file = AtomicFile::create(folder.path() / name).or_throw();
    EXPECT_TRUE(AtomicFile::is_unfinished(file.temporary()));
  }
  for (const char* name : {"plan.json", ".plan.json", ".tmp", ".a.tmp", "plan.json.1.2.tmp",
                           ".plan.1.x.tmp", ".plan..2.tmp", ".plan.json.1.2.part"}) {
    EXPECT_FALSE(AtomicFile::is_unfinished(folder.path() / name)) << name;
  }
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
  for (const auto make : {AtomicFile::create, AtomicFile::resume}) {
    const Status status = make("/nowhere/file").status();
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_EQ(status.message(),
              "write /nowhere/file: there is no folder /nowhere; make it, or name another path");
  }
}

TEST(AtomicFile, ErrorsNameTheFileThatWasAskedFor) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  ASSERT_TRUE(make_directories(path).ok());
  const Status folder_there = write_file_atomic(path, "x");
  EXPECT_EQ(folder_there.code(), Code::kInvalidArgument);
  EXPECT_THAT(folder_there.message(), testing::StartsWith("write " + path.string() + ": "));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  const auto below_a_file = folder.path() / "plain" / "file";
  ASSERT_TRUE(write_file_atomic(folder.path() / "plain", "x").ok());
  for (const auto make : {AtomicFile::create, AtomicFile::resume}) {
    const Status status = make(below_a_file).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::StartsWith("write " + below_a_file.string() + ": Not"));
  }
}

TEST(AtomicFile, ANameMayBeAsLongAsTheDiskAllows) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(write_file_atomic(folder.path() / std::string(255, 'x'), "x").ok());
  const Status longer = write_file_atomic(folder.path() / std::string(256, 'x'), "x");
  EXPECT_EQ(longer.code(), Code::kInvalidArgument);
  EXPECT_THAT(longer.message(), testing::HasSubstr("; name a shorter path"));
}

TEST(AtomicFile, APathWithoutANameIsRejected) {
  for (const char* path : {"", "/nowhere/"}) {
    EXPECT_EQ(AtomicFile::create(path).status().code(), Code::kInvalidArgument);
    EXPECT_THAT(AtomicFile::resume(path).status().message(), testing::HasSubstr("names no file"));
  }
}

TEST(AtomicFile, DoesNotTakeThePlaceOfADevice) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  for (const auto make : {AtomicFile::create, AtomicFile::resume}) {
    const Status status = make(path).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr("pipe: no regular file; name a file"));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST(AtomicFile, AnErrorOfTheFileBesideIsOneOfTheFile) {
  const Status full = out_of_memory("write d/.x.saving: full; and remove d/.x.saving: no");
  EXPECT_EQ(as_error_of("d/x", "d/.x.saving", full).message(),
            "write d/x: full; and remove d/x: no");
  EXPECT_EQ(as_error_of("d/x", "d/.x.saving", full).code(), full.code());
  EXPECT_EQ(as_error_of("x", ".x", corrupt("rename .x to x: it is a folder")).message(),
            "write x: it is a folder");
  EXPECT_TRUE(as_error_of("x", ".x", {}).ok());
}

TEST(AtomicFile, WhatIsInTheWayOfAnUnfinishedFileIsNamed) {
  const test::TemporaryFolder folder;
  const auto in_the_way = folder.path() / ".file.part";
  ASSERT_TRUE(make_directories(in_the_way).ok());
  const Status status = AtomicFile::resume(folder.path() / "file").status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr(in_the_way.string() + ", where"));
}

}  // namespace
}  // namespace hanji::base
