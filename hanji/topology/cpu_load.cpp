#include "hanji/topology/cpu_load.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <sstream>
#include <string>

#include "hanji/base/file.h"

namespace hanji::topology {
namespace {

double own_seconds() {
  struct timespec now {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

Result<CpuTimes> read_cpu_times(const std::filesystem::path& root) {
  HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(root / "proc/stat", 4 << 20));
  enum { kUser, kNice, kSystem, kIdle, kWait, kIrq, kSoftIrq, kSteal, kCount };
  std::array<double, kCount> ticks{};
  std::istringstream words(text);
  std::string name;
  words >> name;
  for (double& one : ticks) words >> one;
  if (!words || name != "cpu") {
    return base::corrupt((root / "proc/stat").string() + ": no times of all CPUs together");
  }
  const auto hertz = static_cast<double>(::sysconf(_SC_CLK_TCK));
  CpuTimes times{.busy = 0, .total = 0, .own = own_seconds()};
  for (int i = 0; i < kCount; ++i) {
    times.total += ticks[i] / hertz;
    if (i != kIdle && i != kWait) times.busy += ticks[i] / hertz;
  }
  return times;
}

double load_of_others(const CpuTimes& begin, const CpuTimes& end) {
  const double total = end.total - begin.total;
  if (total <= 0) return 0;
  const double others = (end.busy - begin.busy) - (end.own - begin.own);
  return std::clamp(others / total, 0.0, 1.0);
}

std::string describe_load(double load) {
  if (load <= kMaxLoad) return "";
  return fmt::format("other processes used {:.0f} % of the CPUs meanwhile", load * 100);
}

}  // namespace hanji::topology
