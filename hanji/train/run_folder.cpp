#include "hanji/train/run_folder.h"

#include <fmt/format.h>

#include "hanji/base/env.h"
#include "hanji/base/file.h"

namespace hanji::train {
namespace {

namespace fs = std::filesystem;

bool holds_something(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !(fs::is_directory(path, error) && fs::is_empty(path, error));
}

fs::path fresh_folder() {
  int number = 1;
  while (fs::exists(fs::path("runs") / fmt::format("{:03}", number))) ++number;
  return fs::path("runs") / fmt::format("{:03}", number);
}

}  // namespace

Result<fs::path> claim_folder(const std::string& wanted) {
  const fs::path path = wanted.empty() ? fresh_folder() : fs::path(wanted);
  if (holds_something(path)) {
    return base::invalid_argument("run.out: " + path.string() +
                                  " is not an empty folder; a run never writes over another, so "
                                  "name a new one with --out");
  }
  HANJI_RETURN_IF_ERROR(base::make_directories(path));
  for (const char* part : {"trace", "logs", "tensorboard", "checkpoints"}) {
    HANJI_RETURN_IF_ERROR(base::make_directories(path / part));
  }
  return fs::absolute(path);
}

Result<fs::path> cache_folder() {
  fs::path folder;
  if (const auto own = base::read(base::Variable::kHanjiCacheDir)) {
    folder = *own;
  } else if (const auto cache = base::read(base::Variable::kXdgCacheHome)) {
    folder = fs::path(*cache) / "hanji";
  } else if (const auto home = base::read(base::Variable::kHome)) {
    folder = fs::path(*home) / ".cache" / "hanji";
  } else {
    return base::not_found(
        "no folder for measurements: HANJI_CACHE_DIR, XDG_CACHE_HOME and HOME "
        "are all unset; set one of them");
  }
  HANJI_RETURN_IF_ERROR(base::make_directories(folder));
  return folder;
}

}  // namespace hanji::train
