#include "hanji/base/memory_headroom.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include "hanji/base/file.h"

namespace hanji::base {
namespace {

using testing::EndsWith;
namespace fs = std::filesystem;

/// A /proc and a /sys/fs/cgroup of our own.
class Headroom : public testing::Test {
 protected:
  Headroom() {
    root_ = ::mkdtemp(template_);
    folders_ = {root_ / "proc", root_ / "cgroup"};
    write("proc/meminfo", "MemTotal:       2000 kB\nMemAvailable:   1000 kB\n");
  }
  ~Headroom() override { static_cast<void>(remove_tree(root_)); }

  void write(const fs::path& name, std::string_view content) {
    ASSERT_TRUE(make_directories((root_ / name).parent_path()).ok());
    ASSERT_TRUE(write_file_atomic(root_ / name, content).ok());
  }
  MemoryHeadroom headroom() { return *memory_headroom(folders_); }

  char template_[32] = "/tmp/hanji_memory_XXXXXX";
  fs::path root_;
  KernelFolders folders_;
};

TEST_F(Headroom, WithoutCgroupsItIsMemAvailable) {
  EXPECT_EQ(headroom().bytes, 1000 * 1024);
  EXPECT_EQ(headroom().limited_by, "MemAvailable");
}

TEST_F(Headroom, TheTightestVersion2GroupUpToTheRootLimits) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "max\n");
  write("cgroup/a/b/memory.current", "10\n");
  write("cgroup/a/memory.max", "50000\n");
  write("cgroup/a/memory.current", "20000\n");
  write("cgroup/a/memory.stat", "anon 1\nactive_file 3\ninactive_file 5000\n");
  EXPECT_EQ(headroom().bytes, 50000 - (20000 - 5000));
  EXPECT_THAT(headroom().limited_by, EndsWith("cgroup/a/memory.max"));
}

TEST_F(Headroom, Version1IsReadFromTheMemoryController) {
  write("proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/job\n0::/\n");
  write("cgroup/memory/job/memory.limit_in_bytes", "4096\n");
  write("cgroup/memory/job/memory.usage_in_bytes", "1096\n");
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/memory.usage_in_bytes", "123456\n");
  EXPECT_EQ(headroom().bytes, 3000);
}

TEST_F(Headroom, APathFromOutsideTheContainerFallsBackToTheMountsRoot) {
  write("proc/self/cgroup", "0::/../outside/of/here\n");
  write("cgroup/memory.max", "7000\n");
  write("cgroup/memory.current", "8000\n");
  EXPECT_EQ(headroom().bytes, 0);
}

TEST_F(Headroom, WithoutMeminfoItSaysWhichFile) {
  write("proc/meminfo", "nothing here\n");
  const auto result = memory_headroom(folders_);
  EXPECT_EQ(result.status().code(), Code::kInternal);
  EXPECT_THAT(result.status().message(), testing::HasSubstr("meminfo"));
}

TEST_F(Headroom, CountsWhatTheKernelKilled) {
  EXPECT_EQ(num_oom_kills(folders_), 0);
  write("proc/vmstat", "nr_free_pages 12\noom_kill 3\n");
  EXPECT_EQ(num_oom_kills(folders_), 3);
}

TEST(HeadroomOfThisMachine, IsAPartOfItsMemory) {
  const int64_t bytes = (*memory_headroom()).bytes;
  EXPECT_GT(bytes, 0);
  EXPECT_LE(bytes, ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE));
}

}  // namespace
}  // namespace hanji::base
