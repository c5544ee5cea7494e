#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "hanji/base/status.h"

namespace hanji::topology {

/// CPU time in seconds: of the host since it started, of this process since it began.
struct CpuTimes {
  double busy = 0;   ///< Of all CPUs together, with what a hypervisor took.
  double total = 0;  ///< The same and idle.
  double own = 0;    ///< Of all threads of this process.
};

/// What this process has used so far.
struct OwnUse {
  double cpu_seconds = 0;    ///< As CpuTimes::own.
  int64_t major_faults = 0;  ///< Pages that came from a file or from swap while a thread waited.
};
OwnUse own_use();

/// Reads `root`/proc/stat, which counts in hundredths of a second, and this process's clock.
/// Errors  those of read_file(); corrupt for a file without the sums of all CPUs.
Result<CpuTimes> read_cpu_times(const std::filesystem::path& root = "/");

/// The same of these CPUs only.
Result<CpuTimes> read_cpu_times_of(std::span<const int> cpus,
                                   const std::filesystem::path& root = "/");

/// The share of all CPUs that other processes took between the two, in [0, 1].
double load_of_others(const CpuTimes& begin, const CpuTimes& end);

/// What was timed while others used more is timed again.
inline constexpr double kMaxLoad = 0.1;

/// "other processes used 77 % of the CPUs meanwhile"; empty up to kMaxLoad.
std::string describe_load(double load);

}  // namespace hanji::topology
