#include "hanji/checkpoint/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "hanji/base/file.h"
#include "hanji/base/units.h"
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

Result<SafetensorsFile> open_verified(const fs::path& folder, const FileRecord& record,
                                      Check check) {
  const fs::path path = folder / record.name;
  HANJI_RETURN_IF_ERROR(check_regular(path));
  HANJI_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  HANJI_RETURN_IF_ERROR(verify(record, file, check).at(folder.native()));
  return file;
}

Result<Manifest> open_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestFile;
  HANJI_RETURN_IF_ERROR(check_regular(path));
  HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(path));
  auto manifest = parse_manifest(text);
  if (!manifest.ok()) return manifest.status().at(path.native());
  std::set<std::string> names;
  std::set<std::optional<StateKind>> kinds;
  for (const FileRecord& file : manifest->files) {
    names.insert(file.name);
    kinds.insert(kind_of_file(file.name));
  }
  if (names.size() == manifest->files.size() && kinds.size() == 2) return manifest;
  return base::corrupt(fmt::format("{}: it lists {}, not one or more of model and of optimizer",
                                   path.native(), base::counted(manifest->files.size(), "file")));
}

/// Refuses a tensor of which an element is in none or in two of the files.
/// Cost    reads no element.
Status check_runs(const SavedTensor& tensor) {
  const int64_t count =
      *dense_bytes(tensor.dtype, tensor.shape) / static_cast<int64_t>(base::size_of(tensor.dtype));
  const auto width = static_cast<int64_t>(base::size_of(tensor.dtype));
  int64_t next = 0;
  Status status;
  const auto compare = [&](int64_t begin, int64_t end) {
    if (status.ok() && begin != next) {
      status = base::corrupt(fmt::format("elements {} to {} of tensor '{}' {} are in {} its files",
                                         std::min(begin, next), std::max(begin, next), tensor.name,
                                         describe(tensor.dtype, tensor.shape),
                                         begin > next ? "none of" : "more than one of"));
    }
    next = end;
  };
  for_each_run(tensor, {0, count}, [&](int64_t begin, std::span<const std::byte> run) {
    compare(begin, begin + std::ssize(run) / width);
  });
  compare(count, count);
  return status;
}

Result<std::vector<SavedTensor>> tensors_of(const Checkpoint& checkpoint, StateKind kind) {
  std::map<std::string, SavedTensor> all;
  for (size_t i = 0; i < checkpoint.files.size(); ++i) {
    const FileRecord& file = checkpoint.manifest.files[i];
    if (kind_of_file(file.name) != kind) continue;
    for (size_t k = 0; k < file.tensors.size(); ++k) {
      const TensorRecord& record = file.tensors[k];
      const auto added =
          all.try_emplace(record.name, SavedTensor{record.name, record.dtype, record.shape});
      SavedTensor& tensor = added.first->second;
      if (record.dtype != tensor.dtype || record.shape != tensor.shape) {
        return base::corrupt(fmt::format(
            "{}: tensor '{}' is {} here and {} in another file", file.name, record.name,
            describe(record.dtype, record.shape), describe(tensor.dtype, tensor.shape)));
      }
      tensor.runs.push_back({record.elements, checkpoint.files[i].tensors()[k].bytes});
    }
  }
  std::vector<SavedTensor> tensors;
  for (auto& [name, tensor] : all) {
    HANJI_RETURN_IF_ERROR(check_runs(tensor));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
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
    return base::not_found(
        fmt::format("{}: no checkpoint lies here; name the folder of a run, or one of its "
                    "checkpoints",
                    folder.native()));
  }
  std::string reasons;
  for (const Status& status : refused) reasons += "\n  " + status.message();
  return base::corrupt(fmt::format("{}: none of {} is good:{}", folder.native(),
                                   base::counted(refused.size(), "checkpoint"), reasons));
}

}  // namespace

Result<Checkpoint> open_checkpoint(const fs::path& path, Check check) {
  Checkpoint checkpoint{.path = path};
  HANJI_ASSIGN_OR_RETURN(checkpoint.manifest, open_manifest(path));
  for (const FileRecord& record : checkpoint.manifest.files) {
    HANJI_ASSIGN_OR_RETURN(SafetensorsFile file, open_verified(path, record, check));
    checkpoint.files.push_back(std::move(file));
  }
  for (const StateKind kind : {StateKind::kModel, StateKind::kOptimizer}) {
    auto tensors = tensors_of(checkpoint, kind);
    if (!tensors.ok()) return tensors.status().at(path.native());
    (kind == StateKind::kModel ? checkpoint.model : checkpoint.optimizer) = *std::move(tensors);
  }
  return checkpoint;
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
