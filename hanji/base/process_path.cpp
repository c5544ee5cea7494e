#include "hanji/base/process_path.h"

#include <string>

namespace hanji::base {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as the kernel follows

bool is_of_one_process(const fs::path& path) { return path.native().starts_with("/proc/"); }

/// Whether a link on the way to a file is one that each process has for itself.
bool leads_through_process(fs::path path) {
  std::error_code error;
  for (int links = 0; links < kMaxLinks; ++links) {
    path = fs::absolute(path, error).lexically_normal();
    // Its folder may be a link, too, such as /dev/fd.
    if (!error) path = fs::weakly_canonical(path.parent_path(), error) / path.filename();
    if (error) return false;
    if (is_of_one_process(path)) return true;
    const fs::path next = fs::read_symlink(path, error);
    if (error) return false;  // no link
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  return false;
}

}  // namespace

fs::path path_for_all_processes(const fs::path& path) {
  if (!leads_through_process(path)) return path;
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error || is_of_one_process(real) || !fs::exists(real, error) ? fs::path() : real;
}

}  // namespace hanji::base
