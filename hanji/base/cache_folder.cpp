#include "hanji/base/cache_folder.h"

#include <unistd.h>

#include <cerrno>

#include "hanji/base/env.h"
#include "hanji/base/file.h"

namespace hanji::base {

namespace fs = std::filesystem;

Result<fs::path> cache_folder() {
  if (const auto own = read(Variable::kHanjiCacheDir)) return fs::path(*own);
  if (const auto cache = read(Variable::kXdgCacheHome)) return fs::path(*cache) / "hanji";
  if (const auto home = read(Variable::kHome)) return fs::path(*home) / ".cache" / "hanji";
  return not_found(
      "no folder for measurements: HANJI_CACHE_DIR, XDG_CACHE_HOME and HOME are all unset; set one "
      "of them");
}

Status check_cache_folder() {
  HANJI_ASSIGN_OR_RETURN(const fs::path folder, cache_folder());
  HANJI_RETURN_IF_ERROR(make_directories(folder));
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return from_errno("write into folder " + folder.string(), errno);
}

}  // namespace hanji::base
