#include "hanji/base/memory_headroom.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

#include "hanji/base/units.h"

namespace hanji::base {
namespace {

namespace fs = std::filesystem;

/// File names of one cgroup generation.
struct Generation {
  fs::path mount;
  const char* limit;
  const char* usage;
  const char* inactive_key;
  const char* events;
};

std::optional<int64_t> to_integer(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return {};
  return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX));
}

/// The first word of a file as a number; nothing for "max" or an absent file.
std::optional<int64_t> read_number(const fs::path& path) {
  std::string word;
  if (!(std::ifstream(path) >> word)) return {};
  return to_integer(word);
}

/// The number after `key` in a file of "key value" lines.
std::optional<int64_t> read_keyed(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, value;
    if (words >> name >> value && name == key) return to_integer(value);
  }
  return {};
}

/// True for "memory" in a list such as "cpu,memory".
bool names_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "memory") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

void narrow(MemoryHeadroom& headroom, const fs::path& folder, const Generation& generation) {
  const auto limit = read_number(folder / generation.limit);
  const auto usage = read_number(folder / generation.usage);
  if (!limit || !usage) return;
  const int64_t cache = read_keyed(folder / "memory.stat", generation.inactive_key).value_or(0);
  const int64_t used = std::max<int64_t>(0, *usage - cache);
  const int64_t free = std::max<int64_t>(0, *limit - used);
  if (free < headroom.bytes) headroom = {free, (folder / generation.limit).string()};
}

using Visit = std::function<void(const fs::path& folder, const Generation&)>;

/// A container may see a path from outside its namespace: folders that are not there are skipped
/// and the mount's root, which is then the container's own group, is always read.
void visit_to_root(fs::path group, const Generation& generation, const Visit& visit) {
  group = group.relative_path().lexically_normal();
  while (!group.empty() && *group.begin() != "..") {
    visit(generation.mount / group, generation);
    group = group.parent_path();
  }
  visit(generation.mount, generation);
}

/// The memory cgroups of this process, of either version, each from its own up.
void visit_groups(const KernelFolders& folders, const Visit& visit) {
  const Generation v1{folders.cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                      "total_inactive_file", "memory.oom_control"};
  const Generation v2{folders.cgroup, "memory.max", "memory.current", "inactive_file",
                      "memory.events"};
  std::ifstream groups(folders.proc / "self" / "cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path" or "0::/path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) visit_to_root(path, v2, visit);
    if (names_memory(controllers)) visit_to_root(path, v1, visit);
  }
}

}  // namespace

Result<MemoryHeadroom> memory_headroom(const KernelFolders& folders) {
  const auto available = read_keyed(folders.proc / "meminfo", "MemAvailable:");
  if (!available) {
    return internal((folders.proc / "meminfo").string() + ": no MemAvailable; mount /proc");
  }
  MemoryHeadroom headroom{*available * 1024, "MemAvailable"};
  visit_groups(folders, [&](const fs::path& folder, const Generation& generation) {
    narrow(headroom, folder, generation);
  });
  return headroom;
}

Result<ProcessMemory> process_memory(const KernelFolders& folders) {
  const fs::path status = folders.proc / "self" / "status";
  const auto anonymous = read_keyed(status, "RssAnon:");
  const auto file = read_keyed(status, "RssFile:");
  const auto peak = read_keyed(status, "VmHWM:");
  if (!anonymous || !file || !peak) {
    return internal(status.string() + ": no RssAnon, RssFile or VmHWM; mount /proc");
  }
  return ProcessMemory{*anonymous * 1024, *file * 1024, *peak * 1024};
}

OomKills oom_kills(const KernelFolders& folders) {
  OomKills kills;
  kills.on_machine = read_keyed(folders.proc / "vmstat", "oom_kill").value_or(0);
  visit_groups(folders, [&](const fs::path& folder, const Generation& generation) {
    const auto count = read_keyed(folder / generation.events, "oom_kill");
    if (!count) return;
    kills.groups.push_back({(folder / generation.events).string(), *count,
                            read_number(folder / generation.limit).value_or(INT64_MAX)});
  });
  return kills;
}

std::string describe_oom_kills(const OomKills& before, const OomKills& now) {
  for (const OomKills::Group& group : now.groups) {
    const auto same = std::ranges::find(before.groups, group.file, &OomKills::Group::file);
    const int64_t count = same == before.groups.end() ? 0 : same->count;
    if (group.count <= count) continue;
    std::string text = "of this process's cgroup (" + group.file + ": oom_kill " +
                       std::to_string(count) + " -> " + std::to_string(group.count);
    if (group.limit_bytes != INT64_MAX) text += ", limit " + format_bytes(group.limit_bytes);
    return text + ")";
  }
  if (now.on_machine <= before.on_machine) return {};
  return "on this machine (/proc/vmstat: oom_kill " + std::to_string(before.on_machine) + " -> " +
         std::to_string(now.on_machine) + ")";
}

}  // namespace hanji::base
