#include "hanji/topology/cpu_load.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>

#include "hanji/base/file.h"

namespace hanji::topology {

OwnUse own_use() {
  struct timespec now {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  struct rusage used {};
  ::getrusage(RUSAGE_SELF, &used);
  return {.cpu_seconds = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9,
          .major_faults = used.ru_majflt};
}

namespace {

/// Adds what a line of /proc/stat counts to `times`; false for a line that is not as it should be.
bool add_line(const std::string& line, CpuTimes& times) {
  enum { kUser, kNice, kSystem, kIdle, kWait, kIrq, kSoftIrq, kSteal, kCount };
  std::istringstream words(line);
  std::string name;
  words >> name;
  std::array<double, kCount> ticks{};
  for (double& one : ticks) words >> one;
  if (!words) return false;
  const auto hertz = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (int i = 0; i < kCount; ++i) {
    times.total += ticks[i] / hertz;
    if (i != kIdle && i != kWait) times.busy += ticks[i] / hertz;
  }
  return true;
}

/// Adds up the lines whose name `counts` accepts: "cpu", "cpu0", "cpu1" ...
Result<CpuTimes> read_lines(const std::filesystem::path& root,
                            const std::function<bool(std::string_view name)>& counts) {
  const auto path = root / "proc/stat";
  HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(path, 4 << 20));
  CpuTimes times{.busy = 0, .total = 0, .own = own_use().cpu_seconds};
  std::istringstream lines(text);
  int found = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!counts(std::string_view(line).substr(0, line.find(' ')))) continue;
    if (!add_line(line, times))
      return base::corrupt(path.string() + ": no times in '" + line + "'");
    ++found;
  }
  if (found == 0) return base::corrupt(path.string() + ": no times of the CPUs that are asked for");
  return times;
}

}  // namespace

Result<CpuTimes> read_cpu_times(const std::filesystem::path& root) {
  return read_lines(root, [](std::string_view name) { return name == "cpu"; });
}

Result<CpuTimes> read_cpu_times_of(std::span<const int> cpus, const std::filesystem::path& root) {
  return read_lines(root, [&](std::string_view name) {
    return std::ranges::any_of(cpus, [&](int cpu) { return name == fmt::format("cpu{}", cpu); });
  });
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
