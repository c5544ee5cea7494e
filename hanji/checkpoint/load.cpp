#include "hanji/checkpoint/load.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/file.h"
#include "hanji/checkpoint/folder.h"

namespace hanji::checkpoint {
namespace {

namespace fs = std::filesystem;

Status check_regular(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::regular) return {};
  if (type == fs::file_type::not_found) {
    return base::not_found(fmt::format("{} is missing", path.native()));
  }
  return base::corrupt(fmt::format("{} is no regular file; links are not followed", path.native()));
}

Result<SafetensorsFile> open_verified(const fs::path& folder, const FileRecord& record) {
  const fs::path path = folder / record.name;
  HANJI_RETURN_IF_ERROR(check_regular(path));
  HANJI_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  HANJI_RETURN_IF_ERROR(verify(record, file).at(folder.native()));
  return file;
}

Result<Manifest> open_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestFile;
  HANJI_RETURN_IF_ERROR(check_regular(path));
  HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(path));
  auto manifest = parse_manifest(text);
  if (!manifest.ok()) return manifest.status().at(path.native());
  const auto& files = manifest->files;
  const bool both =
      files.size() == 2 && files[0].name == kModelFile && files[1].name == kOptimizerFile;
  if (both) return manifest;
  return base::corrupt(fmt::format("{}: it lists {} files, not {} and {}", path.native(),
                                   files.size(), kModelFile, kOptimizerFile));
}

// `latest` first, then before it downwards, then after it downwards.
std::vector<Entry> candidates(std::vector<Entry> entries, int64_t latest) {
  std::sort(entries.begin(), entries.end(), [latest](const Entry& a, const Entry& b) {
    const bool a_above = latest >= 0 && a.step > latest;
    const bool b_above = latest >= 0 && b.step > latest;
    return a_above != b_above ? b_above : a.step > b.step;
  });
  return entries;
}

fs::path folder_of_checkpoints(const fs::path& path) {
  std::error_code error;
  const fs::path inside = path / "checkpoints";
  return fs::is_directory(inside, error) ? inside : path;
}

Status none_is_good(const fs::path& folder, const std::vector<Status>& refused) {
  if (refused.empty()) {
    return base::not_found(fmt::format("{}: no checkpoint lies here", folder.native()));
  }
  std::string reasons;
  for (const Status& status : refused) reasons += "\n  " + status.message();
  return base::corrupt(fmt::format("{}: none of {} checkpoints is good:{}", folder.native(),
                                   refused.size(), reasons));
}

}  // namespace

Result<Checkpoint> open_checkpoint(const fs::path& path) {
  HANJI_ASSIGN_OR_RETURN(Manifest manifest, open_manifest(path));
  HANJI_ASSIGN_OR_RETURN(SafetensorsFile model, open_verified(path, manifest.files[0]));
  HANJI_ASSIGN_OR_RETURN(SafetensorsFile optimizer, open_verified(path, manifest.files[1]));
  return Checkpoint{path, std::move(manifest), std::move(model), std::move(optimizer), {}};
}

Result<Checkpoint> load_checkpoint(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path / kManifestFile, error)) return open_checkpoint(path);
  const fs::path folder = folder_of_checkpoints(path);
  HANJI_ASSIGN_OR_RETURN(std::vector<Entry> entries, list_checkpoints(folder));
  const int64_t latest = latest_step(folder);
  std::vector<Status> refused;
  if (latest >= 0 && std::none_of(entries.begin(), entries.end(),
                                  [latest](const Entry& e) { return e.step == latest; })) {
    refused.push_back(base::not_found(fmt::format("{} is missing, and `latest` names it",
                                                  (folder / folder_name(latest)).native())));
  }
  for (const Entry& entry : candidates(std::move(entries), latest)) {
    auto checkpoint = open_checkpoint(entry.path);
    if (checkpoint.ok()) {
      checkpoint->refused = std::move(refused);
      return checkpoint;
    }
    refused.push_back(checkpoint.status());
  }
  return none_is_good(folder, refused);
}

}  // namespace hanji::checkpoint
