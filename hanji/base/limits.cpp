#include "hanji/base/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "hanji/base/text.h"

namespace hanji::base {

Status check_descriptors(int64_t more, std::string_view for_what) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  const int64_t num_open = error ? 3 : std::distance(begin(open), end(open));
  if (num_open + more <= static_cast<int64_t>(limit.rlim_cur)) return {};
  return invalid_argument(fmt::format(
      "{} needs {} descriptors more, {} are open and the limit is {} (at most {}); raise it "
      "(ulimit -n {}), or use fewer ranks or groups",
      for_what, more, num_open, limit.rlim_cur, limit.rlim_max, num_open + more));
}

namespace {

namespace fs = std::filesystem;

std::string first_word_of(const fs::path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

/// The nearest pids.max of the cgroups of this process, with its folder.
std::string describe_pids_max(const fs::path& proc, const fs::path& cgroup) {
  std::ifstream groups(proc / "self" / "cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto fields = split(line, ':');
    const bool is_v2 = fields.size() == 3 && fields[1].empty();
    if (!is_v2 && (fields.size() != 3 || fields[1] != "pids")) continue;
    const fs::path root = is_v2 ? cgroup : cgroup / "pids";
    fs::path group = root / fs::path(fields[2]).relative_path();
    for (; group.native().size() >= root.native().size(); group = group.parent_path()) {
      const std::string most = first_word_of(group / "pids.max");
      if (!most.empty() && most != "max") {
        return fmt::format("{} by pids.max in {}", most, group.native());
      }
    }
  }
  return "none by pids.max of the cgroup";
}

std::string describe_limit(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

}  // namespace

Status no_more_processes(std::string_view what, int error) {
  if (error != EAGAIN) return from_errno(what, error);
  rlimit limit{};
  ::getrlimit(RLIMIT_NPROC, &limit);
  return invalid_argument(fmt::format(
      "{}: the limit on processes and threads is reached ({} of this user by ulimit -u, {}, {} by "
      "kernel.threads-max); raise it, or use fewer ranks, groups or threads",
      what, describe_limit(limit.rlim_cur), describe_pids_max("/proc", "/sys/fs/cgroup"),
      first_word_of("/proc/sys/kernel/threads-max")));
}

}  // namespace hanji::base
