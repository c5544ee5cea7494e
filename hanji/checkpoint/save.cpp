#include "hanji/checkpoint/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "hanji/base/checksum.h"
#include "hanji/base/file.h"
#include "hanji/base/units.h"
#include "hanji/base/version.h"
#include "hanji/checkpoint/folder.h"

namespace hanji::checkpoint {
namespace {

namespace fs = std::filesystem;

// Headers, manifest and the file system's own blocks.
constexpr int64_t kRoomBeside = int64_t{4} << 20;

Status check_room(const fs::path& folder, const State& state) {
  const int64_t need = total_bytes(state.model) + total_bytes(state.optimizer) + kRoomBeside;
  HANJI_ASSIGN_OR_RETURN(const int64_t free, base::free_bytes(folder));
  if (free >= need) return {};
  return base::out_of_memory(fmt::format(
      "{}: a checkpoint takes {}, the disk has {} free; make room or lower checkpoint.keep",
      folder.native(), base::format_bytes(need), base::format_bytes(free)));
}

// Every tensor's bytes as the file gives them back are those that were given to it.
Status check_written(const FileRecord& record, std::span<const NamedTensor> tensors) {
  std::map<std::string_view, uint64_t> saved;
  for (const NamedTensor& tensor : tensors) saved[tensor.name] = base::xxh3(tensor.bytes);
  for (const TensorRecord& tensor : record.tensors) {
    if (tensor.checksum == saved[tensor.name]) continue;
    return base::corrupt(fmt::format("{}: tensor '{}' reads back other bytes than were written",
                                     record.name, tensor.name));
  }
  return {};
}

Status write_file(const fs::path& folder, std::string_view name,
                  std::span<const NamedTensor> tensors, Manifest& manifest) {
  const fs::path path = folder / name;
  HANJI_RETURN_IF_ERROR(write_safetensors(path, tensors, {{"format", "pt"}}));
  HANJI_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
  manifest.files.push_back(record_of(name, file));
  return check_written(manifest.files.back(), tensors);
}

Status write_manifest(const fs::path& folder, const Manifest& manifest) {
  HANJI_ASSIGN_OR_RETURN(const std::string text, to_text(manifest));
  HANJI_ASSIGN_OR_RETURN(
      base::OutputFile file,
      base::OutputFile::open(folder / kManifestFile, base::OutputFile::Mode::kNew));
  HANJI_RETURN_IF_ERROR(file.append(text));
  HANJI_RETURN_IF_ERROR(file.sync());
  return file.close();
}

Status write_all(const fs::path& folder, const State& state, Manifest manifest) {
  manifest.writer = base::version();
  manifest.files.clear();
  HANJI_RETURN_IF_ERROR(base::make_directories(folder));
  HANJI_RETURN_IF_ERROR(write_file(folder, kModelFile, state.model, manifest));
  HANJI_RETURN_IF_ERROR(write_file(folder, kOptimizerFile, state.optimizer, manifest));
  HANJI_RETURN_IF_ERROR(write_manifest(folder, manifest));
  return base::fsync_directory(folder);
}

// The step of the lowest recorded validation loss; -1 when none is recorded.
int64_t best_step(const std::vector<Entry>& entries) {
  int64_t best = -1;
  double lowest = std::numeric_limits<double>::infinity();
  for (const Entry& entry : entries) {
    const auto text = base::read_file(entry.path / kManifestFile);
    if (!text.ok()) continue;
    const auto manifest = parse_manifest(*text);
    if (!manifest.ok() || !manifest->validation_loss) continue;
    if (*manifest->validation_loss >= lowest) continue;
    lowest = *manifest->validation_loss;
    best = entry.step;
  }
  return best;
}

// From the first to keep to the last: the one just saved, then downwards from it. What lies above
// it belongs to a future that a return to an older step gave up.
std::vector<Entry> by_worth(std::vector<Entry> entries, int64_t saved) {
  std::sort(entries.begin(), entries.end(), [saved](const Entry& a, const Entry& b) {
    const bool a_above = a.step > saved;
    const bool b_above = b.step > saved;
    return a_above != b_above ? b_above : a.step > b.step;
  });
  return entries;
}

Status prune(const SaveOptions& options, int64_t saved) {
  HANJI_ASSIGN_OR_RETURN(std::vector<Entry> entries, list_checkpoints(options.folder));
  const int64_t best = options.keep_best ? best_step(entries) : -1;
  entries = by_worth(std::move(entries), saved);
  for (size_t i = static_cast<size_t>(options.keep); i < entries.size(); ++i) {
    if (entries[i].step != best) HANJI_RETURN_IF_ERROR(remove_checkpoint(entries[i]));
  }
  return {};
}

}  // namespace

Status save_checkpoint(const SaveOptions& options, const State& state, Manifest manifest) {
  if (options.keep < 1 || manifest.step < 0) {
    return base::invalid_argument(
        fmt::format("checkpoint.keep is {} and the step {}; keep at least 1, steps count from 0",
                    options.keep, manifest.step));
  }
  if (const auto text = to_text(manifest); !text.ok()) return text.status();
  HANJI_RETURN_IF_ERROR(base::make_directories(options.folder));
  HANJI_RETURN_IF_ERROR(sweep(options.folder));
  HANJI_RETURN_IF_ERROR(check_room(options.folder, state));
  const int64_t step = manifest.step;
  const fs::path unfinished = unfinished_path(options.folder, step);
  Status status = write_all(unfinished, state, std::move(manifest));
  if (status.ok()) status = publish(unfinished, options.folder, step);
  if (!status.ok()) {
    const Status removed = base::remove_tree(unfinished);
    return removed.ok() ? status : status.at("and " + removed.message());
  }
  HANJI_RETURN_IF_ERROR(
      set_latest(options.folder, step).at("saved, but `latest` could not be written"));
  return prune(options, step).at("saved, but an old checkpoint could not be removed");
}

}  // namespace hanji::checkpoint
