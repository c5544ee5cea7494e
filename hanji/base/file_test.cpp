#include "hanji/base/file.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hanji::base {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

class File : public testing::Test {
 protected:
  File() { folder_ = ::mkdtemp(template_); }
  ~File() override { static_cast<void>(remove_tree(folder_)); }

  void write(const fs::path& name, std::string_view content) {
    ASSERT_TRUE(make_directories((folder_ / name).parent_path()).ok());
    ASSERT_TRUE(write_file_atomic(folder_ / name, content).ok());
  }
  std::string read(const fs::path& name) { return *read_file(folder_ / name); }

  char template_[32] = "/tmp/hanji_file_XXXXXX";
  fs::path folder_;
};

/// No file of this process may grow beyond `bytes`: a full disk that needs no disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  rlimit old_{};
};

TEST_F(File, ReadsWhatWasWritten) {
  const std::string content = std::string(200'000, 'a') + '\0' + "end";
  write("a", content);
  EXPECT_EQ(read("a"), content);
  EXPECT_GT((*read_file("/proc/self/status")).size(), 0u);  // says 0 bytes in stat
}

TEST_F(File, ReadRefusesMoreThanAsked) {
  write("a", "12345");
  EXPECT_EQ(*read_file(folder_ / "a", 5), "12345");
  EXPECT_EQ(read_file(folder_ / "a", 4).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(read_file("/dev/zero", 1 << 20).status().code(), Code::kInvalidArgument);
}

TEST_F(File, AnAbsentFileIsNotFoundAndNamed) {
  const auto result = read_file(folder_ / "absent");
  EXPECT_EQ(result.status().code(), Code::kNotFound);
  EXPECT_THAT(result.status().message(), HasSubstr("absent"));
  EXPECT_FALSE(read_file(folder_).ok());
}

TEST_F(File, AFailedReplacementLeavesTheOldFileAndNothingElse) {
  write("a", "old");
  {
    const FileSizeLimit limit(1000);
    EXPECT_FALSE(write_file_atomic(folder_ / "a", std::string(5000, 'n')).ok());
  }
  EXPECT_EQ(read("a"), "old");
  EXPECT_THAT(*list_files(folder_), ElementsAre(folder_ / "a"));
  EXPECT_EQ(write_file_atomic(folder_ / "no" / "a", "x").code(), Code::kNotFound);
}

TEST_F(File, AReplacedFileKeepsItsOldContentForWhoHasItOpen) {
  write("a", "old");
  const auto mapped = MappedFile::open(folder_ / "a");
  write("a", "new");
  EXPECT_EQ(static_cast<char>((*mapped).bytes()[0]), 'o');
  EXPECT_EQ(read("a"), "new");
}

TEST_F(File, MapsBytesAndRefusesWhatIsNoFile) {
  write("a", "xyz");
  write("empty", "");
  auto mapped = MappedFile::open(folder_ / "a");
  ASSERT_TRUE(mapped.ok());
  MappedFile moved = *std::move(mapped);
  EXPECT_EQ(moved.bytes().size(), 3u);
  EXPECT_EQ(static_cast<char>(moved.bytes()[2]), 'z');
  EXPECT_TRUE((*MappedFile::open(folder_ / "empty")).bytes().empty());
  EXPECT_EQ(MappedFile::open(folder_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MappedFile::open(folder_ / "absent").status().code(), Code::kNotFound);
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(folder_ / "fifo").status().code(), Code::kInvalidArgument);
}

TEST_F(File, OutputIsBufferedUntilFlush) {
  auto file = OutputFile::open(folder_ / "a");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->append("abc").ok());
  EXPECT_EQ(read("a"), "");
  ASSERT_TRUE(file->flush().ok());
  EXPECT_EQ(read("a"), "abc");
  ASSERT_TRUE(file->append(std::string(1 << 20, 'b')).ok());
  EXPECT_EQ(read("a").size(), 3u + (1 << 20));
  const std::byte bytes[] = {std::byte{'c'}};
  ASSERT_TRUE(file->append(bytes).ok());
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(read("a").back(), 'c');
  EXPECT_EQ(file->num_bytes(), 4 + (1 << 20));
  EXPECT_TRUE(file->close().ok());
  EXPECT_FALSE(file->append("after").ok() && file->flush().ok());
}

TEST_F(File, OutputModesTruncateAppendOrRefuse) {
  write("a", "old");
  EXPECT_TRUE(OutputFile::open(folder_ / "a", OutputFile::Mode::kAppend)->append("+").ok());
  EXPECT_EQ(read("a"), "old+");
  EXPECT_FALSE(OutputFile::open(folder_ / "a", OutputFile::Mode::kNew).ok());
  EXPECT_TRUE(OutputFile::open(folder_ / "a").ok());
  EXPECT_EQ(read("a"), "");
}

TEST_F(File, TheFirstOutputErrorStays) {
  auto file = OutputFile::open("/dev/full");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->append("x").ok());
  EXPECT_EQ(file->flush().code(), Code::kOutOfMemory);
  EXPECT_EQ(file->append("y").code(), Code::kOutOfMemory);
  EXPECT_EQ(file->sync().code(), Code::kOutOfMemory);
  EXPECT_EQ(file->close().code(), Code::kOutOfMemory);
}

TEST_F(File, OutputStopsWhereTheDiskEnds) {
  auto file = OutputFile::open(folder_ / "a");
  const FileSizeLimit limit(300'000);
  Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) status = file->append(std::string(10'000, 'x'));
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(file->close().message(), status.message());
}

TEST_F(File, AClosedPipeIsAnErrorNotASignal) {
  ::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd write_end(ends[1]);
  auto file = OutputFile::open("/proc/self/fd/" + std::to_string(ends[1]));
  ::close(ends[0]);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_TRUE(file->append("x").ok());
  EXPECT_FALSE(file->close().ok());
}

TEST_F(File, ListsInByteOrderOfPaths) {
  for (const char* name : {"b/2", "b/10", "a.txt", "a/x", "B"}) write(name, "");
  fs::create_directory_symlink(folder_, folder_ / "loop");
  EXPECT_THAT(*list_files(folder_), ElementsAre(folder_ / "B", folder_ / "a.txt"));
  EXPECT_THAT(*list_files(folder_, Recurse::kYes),
              ElementsAre(folder_ / "B", folder_ / "a.txt", folder_ / "a/x", folder_ / "b/10",
                          folder_ / "b/2"));
  EXPECT_EQ(list_files(folder_ / "absent").status().code(), Code::kNotFound);
}

TEST_F(File, MakesFoldersAndRefusesAFileInTheWay) {
  EXPECT_TRUE(make_directories(folder_ / "a/b/c").ok());
  EXPECT_TRUE(make_directories(folder_ / "a/b/c").ok());
  write("file", "");
  EXPECT_FALSE(make_directories(folder_ / "file" / "d").ok());
}

TEST_F(File, APrivateFolderIsOursAlone) {
  EXPECT_TRUE(make_private_directory(folder_ / "mine").ok());
  EXPECT_TRUE(make_private_directory(folder_ / "mine").ok());
  ASSERT_EQ(::chmod((folder_ / "mine").c_str(), 0755), 0);
  EXPECT_EQ(make_private_directory(folder_ / "mine").code(), Code::kInvalidArgument);
  ASSERT_TRUE(make_private_directory(folder_ / "real").ok());
  fs::create_directory_symlink(folder_ / "real", folder_ / "link");
  EXPECT_EQ(make_private_directory(folder_ / "link").code(), Code::kInvalidArgument);
}

TEST_F(File, RemoveTreeStopsAtLinks) {
  write("kept/file", "x");
  ASSERT_TRUE(make_directories(folder_ / "gone/sub").ok());
  fs::create_directory_symlink(folder_ / "kept", folder_ / "gone/sub/link");
  EXPECT_TRUE(remove_tree(folder_ / "gone").ok());
  EXPECT_TRUE(remove_tree(folder_ / "gone").ok());
  EXPECT_FALSE(fs::exists(folder_ / "gone"));
  EXPECT_EQ(read("kept/file"), "x");
}

TEST_F(File, RenameReplacesAndNamesBothOnError) {
  write("a", "new");
  write("b", "old");
  EXPECT_TRUE(rename_and_sync(folder_ / "a", folder_ / "b").ok());
  EXPECT_EQ(read("b"), "new");
  const Status status = rename_and_sync(folder_ / "a", folder_ / "c");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("/a to "));
}

TEST_F(File, TellsFreeSpaceAndTheRunningProgram) {
  const auto free = static_cast<double>(fs::space(folder_).available);
  EXPECT_NEAR(static_cast<double>(*free_bytes(folder_)), free, 0.05 * free + 1e9) << "others write";
  EXPECT_EQ(*free_bytes("/proc"), 0);
  EXPECT_FALSE(free_bytes(folder_ / "absent").ok());
  EXPECT_EQ((*executable_path()).filename(), "hanji_base_test");
}

}  // namespace
}  // namespace hanji::base
