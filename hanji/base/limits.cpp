#include "hanji/base/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>

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
      "(ulimit -n {}) or use fewer ranks",
      for_what, more, num_open, limit.rlim_cur, limit.rlim_max, num_open + more));
}

Status no_more_processes(std::string_view what, int error) {
  if (error != EAGAIN) return from_errno(what, error);
  return invalid_argument(
      fmt::format("{}: the limit on processes and threads is reached (ulimit -u, pids.max of the "
                  "cgroup, kernel.threads-max); raise it, or use fewer ranks or threads",
                  what));
}

}  // namespace hanji::base
