#include "hanji/train/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include "hanji/base/advice.h"
#include "hanji/base/atomic_file.h"
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

Status make_parts(const fs::path& path, std::span<const char* const> parts) {
  for (const char* part : parts) {
    HANJI_RETURN_IF_ERROR(base::make_directories(path / part));
  }
  return {};
}

/// The folder itself, or the nearest one above it that is there.
fs::path nearest_existing(const fs::path& path) {
  std::error_code error;
  fs::path here = fs::absolute(path, error);
  while (!fs::exists(here, error) && here.has_relative_path()) here = here.parent_path();
  return here;
}

Status check_path(const fs::path& path) {
  if (holds_something(path)) {
    return base::invalid_argument(
        fmt::format("run.out: {} is not an empty folder; a run never writes over another, so "
                    "name a new one with --out, or go on with --resume",
                    path.string()));
  }
  const fs::path above = nearest_existing(path);
  std::error_code error;
  if (!fs::is_directory(above, error) || ::access(above.c_str(), W_OK | X_OK) != 0) {
    return base::invalid_argument(
        fmt::format("run.out: {} cannot be made, for {} is no folder that this user may write; "
                    "name another with --out",
                    path.string(), above.string()));
  }
  return {};
}

}  // namespace

Status check_folder(const std::string& wanted) {
  return check_path(wanted.empty() ? fresh_folder() : fs::path(wanted));
}

Result<fs::path> claim_folder(const std::string& wanted, std::span<const char* const> parts) {
  const fs::path path = wanted.empty() ? fresh_folder() : fs::path(wanted);
  HANJI_RETURN_IF_ERROR(check_path(path));
  Status made = base::make_directories(path);
  if (made.ok()) made = make_parts(path, parts);
  if (made.ok()) return fs::absolute(path);
  return Status(made.code(),
                "run.out: " + base::with_advice(made.message(), "name another folder with --out"));
}

Result<base::FolderLock> lock_folder(const fs::path& out) {
  HANJI_RETURN_IF_ERROR(make_parts(out, kTrainParts));
  const auto now = base::Deadline::after({});
  auto lock = base::FolderLock::take(out, now);
  if (lock.status().code() == Code::kTimeout) {
    return base::invalid_argument("run.out: another run lives in " + out.string() +
                                  " (see its ranks.json); end it, or name another folder");
  }
  HANJI_RETURN_IF_ERROR(lock.status());
  const auto writer = lock_checkpoints(out);
  if (!writer.ok()) return writer.status().at("the ranks of the run before have not ended");
  return lock;
}

Status reopen_folder(const fs::path& out, int64_t steps_done) {
  HANJI_RETURN_IF_ERROR(base::remove_tree(out / "summary.json"));
  HANJI_ASSIGN_OR_RETURN(const auto files, base::list_files(out));
  for (const fs::path& file : files) {
    if (base::AtomicFile::is_unfinished(file)) HANJI_RETURN_IF_ERROR(base::remove_tree(file));
  }
  const auto plan = base::read_file(out / "plan.json");
  if (plan.status().code() == Code::kNotFound) return {};
  HANJI_RETURN_IF_ERROR(plan.status());
  return base::write_file_atomic(out / fmt::format("plan.until_{:08}.json", steps_done), *plan);
}

Result<base::FolderLock> lock_checkpoints(const fs::path& out) {
  const auto soon = base::Deadline::after(std::chrono::seconds(10));
  return base::FolderLock::take(out / "checkpoints", soon);
}

}  // namespace hanji::train
