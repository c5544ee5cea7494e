#include "hanji/topology/place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <span>
#include <vector>

#include "hanji/base/checksum.h"
#include "hanji/base/file.h"

namespace hanji::topology {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxText = 4096;
constexpr int kMaxCacheIndex = 8;

// The first line of a file; empty where there is none.
std::string line_of(const fs::path& file) {
  const auto text = base::read_file(file, kMaxText);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

std::string host_part(const fs::path& root) {
  std::error_code none;
  const std::string boot = line_of(root / "proc/sys/kernel/random/boot_id");
  const std::string network = fs::read_symlink(root / "proc/self/ns/net", none).string();
  const std::string both = boot + " " + network;
  return fmt::format("host:{:016x}", base::xxh3(std::as_bytes(std::span(both))));
}

// "node0" among the links of a CPU's folder.
std::string memory_part(const fs::path& cpu) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(cpu, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("node")) return "memory:" + name.substr(4);
  }
  return "";
}

// The last level, by the CPUs that share it.
std::string cache_part(const fs::path& cpu) {
  std::string shared;
  for (int index = 0; index < kMaxCacheIndex; ++index) {
    const std::string cpus = line_of(cpu / fmt::format("cache/index{}", index) / "shared_cpu_list");
    if (cpus.empty()) break;
    shared = cpus;
  }
  return shared.empty() ? "" : "cache:" + shared;
}

RankPath path_of_cpu(const fs::path& root, int cpu) {
  const fs::path folder = root / "sys/devices/system/cpu" / fmt::format("cpu{}", cpu);
  const std::string package = line_of(folder / "topology/physical_package_id");
  RankPath path;
  for (const std::string& part :
       {package.empty() ? "" : "package:" + package, memory_part(folder), cache_part(folder)}) {
    if (part.empty()) break;
    path.push_back(part);
  }
  return path;
}

std::vector<int> allowed_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

RankPath place_of_caller(const fs::path& root) {
  RankPath common;
  bool is_first = true;
  for (const int cpu : allowed_cpus()) {
    const RankPath path = path_of_cpu(root, cpu);
    if (is_first) common = path;
    is_first = false;
    const auto differs = std::ranges::mismatch(common, path);
    common.erase(differs.in1, common.end());
  }
  common.insert(common.begin(), host_part(root));
  return common;
}

std::string to_line(const RankPath& path) { return fmt::format("{}", fmt::join(path, " ")); }

RankPath path_from_line(std::string_view line) {
  RankPath path;
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    if (end > 0) path.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return path;
}

}  // namespace hanji::topology
