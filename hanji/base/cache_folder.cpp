#include "hanji/base/cache_folder.h"

#include "hanji/base/env.h"

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

}  // namespace hanji::base
