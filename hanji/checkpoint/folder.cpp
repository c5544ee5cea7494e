#include "hanji/checkpoint/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>

#include "hanji/base/file.h"

// Names in a folder of checkpoints. Only a rename ever makes or ends a name without a dot:
//   step_00000020            complete
//   .saving-step_00000020    being written
//   .replaced-step_00000020  complete, set aside while another one of this step takes its place
//   .removing-step_00000020  being removed
//   latest                   the name of the last one saved
namespace hanji::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kSaving = ".saving-";
constexpr std::string_view kReplaced = ".replaced-";
constexpr std::string_view kRemoving = ".removing-";
constexpr std::string_view kLatest = "latest";

// The step of "step_00000020", or -1 for any other name, another spelling of a step included.
int64_t step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = -1;
  const char* last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), last, step);
  const bool whole = error == std::errc() && end == last && step >= 0;
  return whole && folder_name(step) == name ? step : -1;
}

bool is_real_folder(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == fs::file_type::directory;
}

Result<std::vector<std::string>> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator next(folder, error);
  for (; !error && next != fs::directory_iterator(); next.increment(error)) {
    if (is_real_folder(next->path())) names.push_back(next->path().filename().native());
  }
  if (error.value() == ENOENT) {
    return base::not_found(folder.native() +
                           ": no such folder; name the folder of a run, or one "
                           "of its checkpoints");
  }
  if (error) return base::from_errno("list " + folder.native(), error.value());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string folder_name(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

fs::path unfinished_path(const fs::path& folder, int64_t step) {
  return folder / fmt::format("{}{}", kSaving, folder_name(step));
}

Result<std::vector<Entry>> list_checkpoints(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(const auto names, names_in(folder));
  std::map<int64_t, fs::path> found;
  for (const std::string& name : names) {
    if (const int64_t step = step_of(name); step >= 0) found[step] = folder / name;
    if (!name.starts_with(kReplaced)) continue;
    const int64_t step = step_of(std::string_view(name).substr(kReplaced.size()));
    if (step >= 0) found.emplace(step, folder / name);
  }
  std::vector<Entry> entries;
  for (auto& [step, path] : found) {
    const fs::path plain = folder / folder_name(step);
    entries.push_back({step, is_real_folder(plain) ? plain : path});
  }
  return entries;
}

int64_t latest_step(const fs::path& folder) {
  const auto content = base::read_file(folder / kLatest, 4096);
  if (!content.ok()) return -1;
  return step_of(std::string_view(*content).substr(0, content->find('\n')));
}

Status set_latest(const fs::path& folder, int64_t step) {
  return base::write_file_atomic(folder / kLatest, folder_name(step) + "\n");
}

Status publish(const fs::path& unfinished, const fs::path& folder, int64_t step) {
  const fs::path place = folder / folder_name(step);
  const fs::path aside = folder / fmt::format("{}{}", kReplaced, folder_name(step));
  const bool replaces = is_real_folder(place);
  if (replaces) HANJI_RETURN_IF_ERROR(base::rename_and_sync(place, aside));
  if (Status status = base::rename_and_sync(unfinished, place); !status.ok()) {
    if (replaces) return base::rename_and_sync(aside, place).ok() ? status : status.at("set aside");
    return status;
  }
  return replaces ? base::remove_tree(aside) : Status();
}

Status remove_checkpoint(const Entry& entry) {
  const fs::path doomed =
      entry.path.parent_path() / fmt::format("{}{}", kRemoving, folder_name(entry.step));
  HANJI_RETURN_IF_ERROR(base::remove_tree(doomed));
  HANJI_RETURN_IF_ERROR(base::rename_and_sync(entry.path, doomed));
  return base::remove_tree(doomed);
}

Status sweep(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(const auto names, names_in(folder));
  for (const std::string& name : names) {
    if (name.starts_with(kSaving) || name.starts_with(kRemoving)) {
      HANJI_RETURN_IF_ERROR(base::remove_tree(folder / name));
    }
    if (!name.starts_with(kReplaced)) continue;
    const fs::path place = folder / name.substr(kReplaced.size());
    HANJI_RETURN_IF_ERROR(is_real_folder(place) ? base::remove_tree(folder / name)
                                                : base::rename_and_sync(folder / name, place));
  }
  return {};
}

}  // namespace hanji::checkpoint
