#include "hanji/base/memory_headroom.h"

#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

namespace hanji::base {
namespace {

namespace fs = std::filesystem;

/// File names of one cgroup generation.
struct Generation {
  fs::path mount;
  const char* limit;
  const char* usage;
  const char* inactive_key;
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

/// A container may see a path from outside its namespace: folders that are not there are skipped
/// and the mount's root, which is then the container's own group, is always read.
void narrow_to_root(MemoryHeadroom& headroom, fs::path group, const Generation& generation) {
  group = group.relative_path().lexically_normal();
  while (!group.empty() && *group.begin() != "..") {
    narrow(headroom, generation.mount / group, generation);
    group = group.parent_path();
  }
  narrow(headroom, generation.mount, generation);
}

}  // namespace

Result<MemoryHeadroom> memory_headroom(const KernelFolders& folders) {
  const auto available = read_keyed(folders.proc / "meminfo", "MemAvailable:");
  if (!available) {
    return internal((folders.proc / "meminfo").string() + ": no MemAvailable; mount /proc");
  }
  MemoryHeadroom headroom{*available * 1024, "MemAvailable"};
  const Generation v1{folders.cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                      "total_inactive_file"};
  const Generation v2{folders.cgroup, "memory.max", "memory.current", "inactive_file"};
  std::ifstream groups(folders.proc / "self" / "cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path" or "0::/path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) narrow_to_root(headroom, path, v2);
    if (names_memory(controllers)) narrow_to_root(headroom, path, v1);
  }
  return headroom;
}

int64_t num_oom_kills(const KernelFolders& folders) {
  return read_keyed(folders.proc / "vmstat", "oom_kill").value_or(0);
}

}  // namespace hanji::base
