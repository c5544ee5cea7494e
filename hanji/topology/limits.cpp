#include "hanji/topology/limits.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/file.h"

namespace hanji::topology {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = 1 << 20;
constexpr int64_t kUnlimitedV1 = INT64_MAX / 2;  // v1 writes a page-rounded 2^63 for "no limit"

/// A group's folder and the mount point above which no parent is visible.
struct GroupFolder {
  fs::path folder;
  fs::path top;
};

std::string read(const fs::path& path) {
  auto text = base::read_file(path, kMaxBytes);
  return text.ok() ? *std::move(text) : std::string();
}

std::optional<int64_t> first_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<int64_t> read_integer(const fs::path& path) { return first_integer(read(path)); }

bool has_word(std::string_view list, std::string_view word) {
  std::stringstream words{std::string(list)};
  for (std::string one; std::getline(words, one, ',');) {
    if (one == word) return true;
  }
  return false;
}

/// The path of this process in the hierarchy of `controller`; empty names the unified one (v2).
std::optional<std::string> group_path(const fs::path& root, std::string_view controller) {
  std::stringstream lines(read(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view controllers(line.data() + first + 1, second - first - 1);
    const bool found = controller.empty() ? controllers.empty() : has_word(controllers, controller);
    if (found) return line.substr(second + 1);
  }
  return std::nullopt;
}

struct Mount {
  std::string root;   ///< The part of the hierarchy that is mounted.
  std::string point;  ///< Where.
};

std::optional<Mount> find_mount(const fs::path& root, std::string_view controller) {
  std::stringstream lines(read(root / "proc/self/mountinfo"));
  for (std::string line; std::getline(lines, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::stringstream left(line.substr(0, dash));
    std::stringstream right(line.substr(dash + 3));
    std::string skip, type, options;
    Mount mount;
    left >> skip >> skip >> skip >> mount.root >> mount.point;
    right >> type >> skip >> options;
    const bool found =
        controller.empty() ? type == "cgroup2" : type == "cgroup" && has_word(options, controller);
    if (found) return mount;
  }
  return std::nullopt;
}

/// The folder of this process's group; the mount point itself where a container hides the path.
std::optional<GroupFolder> group_folder(const fs::path& root, std::string_view controller) {
  auto path = group_path(root, controller);
  const auto mount = find_mount(root, controller);
  if (!path || !mount) return std::nullopt;
  if (mount->root != "/" && path->starts_with(mount->root)) path->erase(0, mount->root.size());
  const fs::path top = root / fs::path(mount->point).relative_path();
  fs::path folder = top / fs::path(*path).lexically_normal().relative_path();
  std::error_code error;
  if (path->find("..") != std::string::npos || !fs::is_directory(folder, error)) folder = top;
  return GroupFolder{folder, top};
}

/// The group's folder, then its parents, up to the mount point.
std::vector<fs::path> way_up(const GroupFolder& group) {
  std::vector<fs::path> folders;
  for (fs::path folder = group.folder;; folder = folder.parent_path()) {
    folders.push_back(folder);
    if (folder == group.top || !folder.has_relative_path()) return folders;
  }
}

void limit_cpus(double quota, double period, Limits& limits) {
  if (quota <= 0 || period <= 0) return;
  const double cpus = quota / period;
  limits.cpu_quota = limits.cpu_quota == 0 ? cpus : std::min(limits.cpu_quota, cpus);
}

/// What is free of it base::memory_headroom() says.
void limit_memory(std::optional<int64_t> limit, Limits& limits) {
  if (!limit || *limit < 0 || *limit >= kUnlimitedV1) return;
  limits.memory_bytes = std::min(limits.memory_bytes, *limit);
}

/// The pids controller has the same files in both versions.
void read_tasks(const fs::path& folder, Limits& limits) {
  const auto limit = read_integer(folder / "pids.max");  // "max" is no number
  if (!limit || *limit < 0) return;
  const int64_t used = std::max<int64_t>(0, read_integer(folder / "pids.current").value_or(0));
  limits.free_tasks = std::min(limits.free_tasks, std::max<int64_t>(0, *limit - used));
}

void read_v2(const fs::path& folder, Limits& limits) {
  std::stringstream cpu(read(folder / "cpu.max"));
  double quota = 0, period = 0;
  if (cpu >> quota >> period) limit_cpus(quota, period, limits);  // "max 100000" is no number
  limit_memory(read_integer(folder / "memory.max"), limits);
  read_tasks(folder, limits);
}

void read_v1_cpu(const fs::path& folder, Limits& limits) {
  const auto quota = read_integer(folder / "cpu.cfs_quota_us");
  const auto period = read_integer(folder / "cpu.cfs_period_us");
  if (quota && period)
    limit_cpus(static_cast<double>(*quota), static_cast<double>(*period), limits);
}

void read_v1_memory(const fs::path& folder, Limits& limits) {
  limit_memory(read_integer(folder / "memory.limit_in_bytes"), limits);
}

}  // namespace

Limits read_limits(const fs::path& root) {
  Limits limits;
  const auto apply = [&](std::string_view controller, auto read_group) {
    if (const auto group = group_folder(root, controller)) {
      for (const fs::path& folder : way_up(*group)) read_group(folder, limits);
    }
  };
  apply("", read_v2);
  apply("cpu", read_v1_cpu);
  apply("memory", read_v1_memory);
  apply("pids", read_tasks);
  return limits;
}

}  // namespace hanji::topology
