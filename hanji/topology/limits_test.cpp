#include "hanji/topology/limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace hanji::topology {
namespace {

namespace fs = std::filesystem;

/// A small root folder with the control-group files of one host.
class LimitsTest : public testing::Test {
 protected:
  LimitsTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::temp_directory_path() /
            ("hanji_limits_" + std::to_string(getpid()) + "_" + test->name());
  }
  ~LimitsTest() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_;
};

TEST_F(LimitsTest, NoFilesNoLimits) {
  const Limits limits = read_limits(root_);
  EXPECT_EQ(limits.cpu_quota, 0);
  EXPECT_EQ(limits.memory_bytes, INT64_MAX);
}

TEST_F(LimitsTest, UnifiedHierarchyTakesTheLowestLimitOnTheWayUp) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup rw\n");
  write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/a/memory.max", "1000000\n");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/a/b/memory.max", "500000\n");
  const Limits limits = read_limits(root_);
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 1.5);
  EXPECT_EQ(limits.memory_bytes, 500000);
}

TEST_F(LimitsTest, FirstVersionReadsEachControllersHierarchy) {
  write("proc/self/cgroup", "4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n0::/\n");
  write("proc/self/mountinfo",
        "31 20 0:27 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "32 20 0:28 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096000\n");
  const Limits limits = read_limits(root_);
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 2);
  EXPECT_EQ(limits.memory_bytes, 4096000);
}

TEST_F(LimitsTest, TasksOfTheTightestGroup) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup rw\n");
  write("sys/fs/cgroup/a/pids.max", "100\n");
  write("sys/fs/cgroup/a/pids.current", "70\n");
  write("sys/fs/cgroup/a/b/pids.max", "max\n");
  write("sys/fs/cgroup/a/b/pids.current", "5\n");
  EXPECT_EQ(read_limits(root_).free_tasks, 30);
  write("proc/self/cgroup", "3:pids:/a\n");
  write("proc/self/mountinfo", "31 20 0:27 / /sys/fs/cgroup rw - cgroup cgroup rw,pids\n");
  write("sys/fs/cgroup/a/pids.current", "200\n");
  EXPECT_EQ(read_limits(root_).free_tasks, 0);
}

TEST_F(LimitsTest, FirstVersionsWordsForNoLimit) {
  write("proc/self/cgroup", "4:memory:/\n2:cpu:/\n");
  write("proc/self/mountinfo",
        "31 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "32 20 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const Limits limits = read_limits(root_);
  EXPECT_EQ(limits.cpu_quota, 0);
  EXPECT_EQ(limits.memory_bytes, INT64_MAX);
}

TEST_F(LimitsTest, AGroupHiddenByAContainerFallsBackToTheMountPoint) {
  write("proc/self/cgroup", "0::/../../elsewhere\n");
  write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
  write("sys/fs/cgroup/memory.max", "777\n");
  EXPECT_EQ(read_limits(root_).memory_bytes, 777);
}

TEST_F(LimitsTest, GarbageLimitsNothing) {
  write("proc/self/cgroup", "::::\n0\nxx:\n0::/\n");
  write("proc/self/mountinfo",
        " - \n-\nx - cgroup2\n30 2 0:2 / /sys/fs/cgroup rw - cgroup2 c rw\n");
  write("sys/fs/cgroup/cpu.max", "many\n");
  write("sys/fs/cgroup/memory.max", "-5\n");
  const Limits limits = read_limits(root_);
  EXPECT_EQ(limits.cpu_quota, 0);
  EXPECT_EQ(limits.memory_bytes, INT64_MAX);
}

}  // namespace
}  // namespace hanji::topology
