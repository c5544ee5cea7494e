#include "hanji/topology/cpu_load.h"

#include <gmock/gmock.h>

#include <unistd.h>

#include <fstream>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::topology {
namespace {

namespace fs = std::filesystem;

/// CPU time of all CPUs, or of some.
CpuTimes times_of(const std::string& stat, const std::vector<int>& cpus = {}) {
  const test::TemporaryFolder root;
  fs::create_directories(root.path() / "proc");
  std::ofstream(root.path() / "proc/stat") << stat;
  return cpus.empty() ? read_cpu_times(root.path()).or_throw()
                      : read_cpu_times_of(cpus, root.path()).or_throw();
}

TEST(CpuTimes, AreTheFirstLineOfProcStat) {
  const double hertz = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const CpuTimes times = times_of("cpu  100 20 30 400 50 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
  EXPECT_DOUBLE_EQ(times.busy * hertz, 100 + 20 + 30 + 6 + 7 + 8);
  EXPECT_DOUBLE_EQ(times.total * hertz, 621);
}

TEST(CpuTimes, OfSomeCpusAreTheSumOfTheirLines) {
  const double hertz = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const std::string stat =
      "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 0 0 2 0 0 0 0 0 0\ncpu1 10 0 0 20 0 0 0 0 0 0\n"
      "cpu10 100 0 0 200 0 0 0 0 0 0\nintr 5\n";
  EXPECT_DOUBLE_EQ(times_of(stat, {1}).busy * hertz, 10);
  EXPECT_DOUBLE_EQ(times_of(stat, {0, 10}).busy * hertz, 101);
  EXPECT_DOUBLE_EQ(times_of(stat, {0, 10}).total * hertz, 303);
  EXPECT_THROW(times_of(stat, {7}), Error);
}

TEST(CpuTimes, RefuseWhatIsNoStat) {
  EXPECT_THROW(times_of("cpu0 1 2 3\n"), Error);
  EXPECT_THROW(times_of(""), Error);
  EXPECT_EQ(read_cpu_times("/nowhere").status().code(), Code::kNotFound);
}

TEST(LoadOfOthers, LeavesOutThisProcess) {
  const CpuTimes begin{.busy = 100, .total = 500, .own = 3};
  EXPECT_DOUBLE_EQ(load_of_others(begin, {.busy = 104, .total = 508, .own = 5}), 0.25);
  EXPECT_DOUBLE_EQ(load_of_others(begin, {.busy = 102, .total = 508, .own = 5}), 0);
  EXPECT_DOUBLE_EQ(load_of_others(begin, {.busy = 101, .total = 508, .own = 5}), 0);
  EXPECT_DOUBLE_EQ(load_of_others(begin, begin), 0);
}

TEST(DescribeLoad, SaysWhatDisturbsAMeasurement) {
  EXPECT_EQ(describe_load(kMaxLoad), "");
  EXPECT_EQ(describe_load(0.766), "other processes used 77 % of the CPUs meanwhile");
}

TEST(CpuTimes, GrowOnThisHost) {
  const CpuTimes begin = read_cpu_times().or_throw();
  const int64_t end_ns = base::now_ns() + 200'000'000;
  while (base::now_ns() < end_ns) continue;
  const CpuTimes end = read_cpu_times().or_throw();
  EXPECT_GT(end.own, begin.own);
  EXPECT_GE(end.busy, begin.busy);
  EXPECT_GE(load_of_others(begin, end), 0);
  EXPECT_LE(load_of_others(begin, end), 1);
}

}  // namespace
}  // namespace hanji::topology
