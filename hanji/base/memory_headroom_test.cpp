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

TEST_F(Headroom, AProcessHasItsOwnPagesAndThoseOfFiles) {
  EXPECT_EQ(process_memory(folders_).status().code(), Code::kInternal);
  write("proc/self/status",
        "Name:\tx\nVmHWM:\t  900 kB\nVmRSS:\t 700 kB\nRssAnon:\t 300 kB\nRssFile:\t 400 kB\n");
  const ProcessMemory memory = process_memory(folders_).or_throw();
  EXPECT_EQ(memory.private_bytes, 300 << 10);
  EXPECT_EQ(memory.file_bytes, 400 << 10);
  EXPECT_EQ(memory.peak_bytes, 900 << 10);
  EXPECT_GT(process_memory().or_throw().private_bytes, 0);
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
  EXPECT_EQ(oom_kills(folders_).on_machine, 0);
  write("proc/vmstat", "nr_free_pages 12\noom_kill 3\n");
  EXPECT_EQ(oom_kills(folders_).on_machine, 3);
  EXPECT_TRUE(oom_kills(folders_).groups.empty());
}

TEST_F(Headroom, CountsWhatTheKernelKilledInItsOwnGroupsFirst) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.events", "low 0\nmax 9\noom 2\noom_kill 1\n");
  write("cgroup/a/b/memory.max", "50000\n");
  write("cgroup/a/memory.events", "oom_kill 4\n");
  const auto groups = oom_kills(folders_).groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(groups[0].file, EndsWith("cgroup/a/b/memory.events"));
  EXPECT_EQ(groups[0].count, 1);
  EXPECT_EQ(groups[0].limit_bytes, 50000);
  EXPECT_EQ(groups[1].count, 4);
  EXPECT_EQ(groups[1].limit_bytes, INT64_MAX);
}

TEST_F(Headroom, Version1CountsInOomControl) {
  write("proc/self/cgroup", "4:memory:/job\n");
  write("cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
  write("cgroup/memory/job/memory.limit_in_bytes", "4096\n");
  const auto groups = oom_kills(folders_).groups;
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].count, 7);
  EXPECT_EQ(groups[0].limit_bytes, 4096);
}

TEST(OomKills, AreToldByTheGroupThatCountedOneMore) {
  const OomKills before{.on_machine = 3, .groups = {{"a", 1, 1 << 20}, {"b", 5}}};
  EXPECT_EQ(describe_oom_kills(before, before), "");
  OomKills now = before;
  now.on_machine = 4;
  EXPECT_EQ(describe_oom_kills(before, now), "on this machine (/proc/vmstat: oom_kill 3 -> 4)");
  now.groups[1].count = 6;
  EXPECT_EQ(describe_oom_kills(before, now), "of this process's cgroup (b: oom_kill 5 -> 6)");
  now.groups[0].count = 2;
  EXPECT_EQ(describe_oom_kills(before, now),
            "of this process's cgroup (a: oom_kill 1 -> 2, limit 1.05 MB)");
}

TEST(HeadroomOfThisMachine, IsAPartOfItsMemory) {
  const int64_t bytes = (*memory_headroom()).bytes;
  EXPECT_GT(bytes, 0);
  EXPECT_LE(bytes, ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE));
}

}  // namespace
}  // namespace hanji::base
