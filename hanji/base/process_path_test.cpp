#include "hanji/base/process_path.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "hanji/base/fd.h"
#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::base {
namespace {

namespace fs = std::filesystem;

fs::path path_of(const Fd& fd) { return "/dev/fd/" + std::to_string(fd.get()); }

TEST(ProcessPath, OfADescriptorIsThatOfItsFile) {
  const test::TemporaryFolder folder;
  const fs::path file = fs::canonical(folder.path()) / "text";
  ASSERT_TRUE(write_file_atomic(file, "text").ok());
  const Fd open(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(path_for_all_processes(path_of(open)), file);
  EXPECT_EQ(path_for_all_processes("/proc/self/fd/" + std::to_string(open.get())), file);
  fs::create_symlink(path_of(open), folder.path() / "link");
  EXPECT_EQ(path_for_all_processes(folder.path() / "link"), file);
  fs::create_directory_symlink("/proc/self/fd", folder.path() / "fds");
  EXPECT_EQ(path_for_all_processes(folder.path() / "fds" / std::to_string(open.get())), file);
}

TEST(ProcessPath, OfWhatHasNoNameIsEmpty) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reader(ends[0]), writer(ends[1]);
  EXPECT_EQ(path_for_all_processes(path_of(reader)), "");
  const test::TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomic(folder.path() / "gone", "x").ok());
  const Fd open(::open((folder.path() / "gone").c_str(), O_RDONLY | O_CLOEXEC));
  fs::remove(folder.path() / "gone");
  EXPECT_EQ(path_for_all_processes(path_of(open)), "");
}

TEST(ProcessPath, OfAllElseIsAsItIs) {
  for (const char* path : {"", "a.txt", "/nowhere/x", ".", "/dev/null", "../proc/x"}) {
    EXPECT_EQ(path_for_all_processes(path), path);
  }
}

}  // namespace
}  // namespace hanji::base
