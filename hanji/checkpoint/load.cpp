#include "hanji/checkpoint/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

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
  return base::corrupt(
      fmt::format("{}: it lists {} files, not one or more of model and of optimizer", path.native(),
                  manifest->files.size()));
}

/// Runs of one tensor, from all files.
struct Found {
  const TensorRecord* first = nullptr;
  std::map<int64_t, std::pair<layout::Range, std::span<const std::byte>>> runs = {};
};

Result<SavedTensor> put_together(const std::string& name, const Found& found) {
  SavedTensor tensor{name, found.first->dtype, found.first->shape};
  int64_t next = 0;
  const auto gap = [&](int64_t end) {
    return base::corrupt(fmt::format("elements {} to {} of tensor '{}' {} are in none of its files",
                                     next, end, name, describe(tensor.dtype, tensor.shape)));
  };
  for (const auto& [begin, run] : found.runs) {
    if (begin != next) return gap(begin);
    tensor.runs.push_back(run.second);
    next = run.first.end;
  }
  const int64_t count =
      *dense_bytes(tensor.dtype, tensor.shape) / static_cast<int64_t>(base::size_of(tensor.dtype));
  if (next != count) return gap(count);
  return tensor;
}

Result<std::vector<SavedTensor>> tensors_of(const Checkpoint& checkpoint, StateKind kind) {
  std::map<std::string, Found> all;
  for (size_t i = 0; i < checkpoint.files.size(); ++i) {
    const FileRecord& file = checkpoint.manifest.files[i];
    if (kind_of_file(file.name) != kind) continue;
    for (size_t k = 0; k < file.tensors.size(); ++k) {
      const TensorRecord& record = file.tensors[k];
      Found& found = all[record.name];
      if (found.first == nullptr) found.first = &record;
      const bool same = record.dtype == found.first->dtype && record.shape == found.first->shape;
      const auto bytes = checkpoint.files[i].tensors()[k].bytes;
      if (same && found.runs.try_emplace(record.elements.begin, record.elements, bytes).second) {
        continue;
      }
      return base::corrupt(
          fmt::format("{}: elements {} to {} of tensor '{}' {} are in another file "
                      "too, or as of another type or shape",
                      file.name, record.elements.begin, record.elements.end, record.name,
                      describe(record.dtype, record.shape)));
    }
  }
  std::vector<SavedTensor> tensors;
  for (const auto& [name, found] : all) {
    HANJI_ASSIGN_OR_RETURN(SavedTensor tensor, put_together(name, found));
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
    return base::not_found(fmt::format("{}: no checkpoint lies here", folder.native()));
  }
  std::string reasons;
  for (const Status& status : refused) reasons += "\n  " + status.message();
  return base::corrupt(fmt::format("{}: none of {} checkpoints is good:{}", folder.native(),
                                   refused.size(), reasons));
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
