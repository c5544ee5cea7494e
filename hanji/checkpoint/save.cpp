#include "hanji/checkpoint/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/units.h"
#include "hanji/base/version.h"
#include "hanji/checkpoint/folder.h"
#include "hanji/checkpoint/internal/part_files.h"

namespace hanji::checkpoint {
namespace {

namespace fs = std::filesystem;

// Beside the tensors: the plan in the manifest and the file system's own blocks; of each tensor its places in a
// header and in the manifest.
constexpr int64_t kRoomOfManifest = int64_t{64} << 10;
constexpr int64_t kRoomOfTensor = 512;

// Between two looks for the parts of others: a save takes milliseconds at least.
constexpr auto kPause = std::chrono::milliseconds(2);

// What a part leaves for part 0: a manifest of its files, or kFailed, a code and why there is none.
constexpr std::string_view kFailed = "failed: ";

fs::path record_path(const fs::path& folder, int part) {
  return folder / fmt::format("part_{}.json", part);
}

Status check_options(const SaveOptions& options, int64_t step) {
  if (options.keep >= 1 && step >= 0) return {};
  return base::invalid_argument(
      fmt::format("checkpoint.keep is {} and the step {}; keep at least 1, steps count from 0",
                  options.keep, step));
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

// The error that a part has left as "CODE: MESSAGE".
Status failure_of(const std::string& what, std::string_view left) {
  const std::string_view code = left.substr(0, left.find(": "));
  constexpr Code kCodes[] = {Code::kInvalidArgument, Code::kNotFound,    Code::kCorrupt,
                             Code::kUnsupported,     Code::kOutOfMemory, Code::kTimeout,
                             Code::kPeerLost,        Code::kMismatch,    Code::kInternal};
  const auto* found = std::ranges::find(kCodes, code, [](Code one) { return base::name_of(one); });
  const bool is_known = found != std::end(kCodes);
  const std::string_view why = is_known ? left.substr(code.size() + 2) : left;
  return {is_known ? *found : Code::kCancelled, fmt::format("{} failed: {}", what, why)};
}

// The files of another part, once it has left its record.
Result<std::vector<FileRecord>> files_of_part(const fs::path& folder, int part,
                                              const base::Deadline& deadline,
                                              const std::stop_token& stop) {
  const fs::path path = record_path(folder, part);
  const std::string what = fmt::format("part {} of the checkpoint", part);
  std::error_code error;
  while (!fs::exists(path, error)) {
    if (deadline.passed() || stop.stop_requested()) {
      return base::timeout(what + " was not written in time; see the log of that rank");
    }
    std::this_thread::sleep_for(kPause);
  }
  HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(path));
  if (text.starts_with(kFailed)) return failure_of(what, text.substr(kFailed.size()));
  auto manifest = parse_manifest(text);
  if (!manifest.ok()) return manifest.status().at(what);
  HANJI_RETURN_IF_ERROR(base::remove_tree(path));
  return std::move(manifest->files);
}

// Part 0: waits for the others, and puts the checkpoint in place.
Status publish_all(const SaveOptions& options, const fs::path& unfinished, Manifest manifest,
                   const std::stop_token& stop) {
  const auto deadline = base::Deadline::after(options.timeout);
  for (int part = 1; part < options.writer.num_parts; ++part) {
    HANJI_ASSIGN_OR_RETURN(const auto files, files_of_part(unfinished, part, deadline, stop));
    manifest.files.insert(manifest.files.end(), files.begin(), files.end());
  }
  HANJI_RETURN_IF_ERROR(write_manifest(unfinished, manifest));
  HANJI_RETURN_IF_ERROR(base::fsync_directory(unfinished));
  return publish(unfinished, options.folder, manifest.step);
}

SaveSize size_of(const State& state) {
  return {.bytes = state.num_bytes(),
          .num_tensors = std::ssize(state.model) + std::ssize(state.optimizer)};
}

Status leave_record(const fs::path& unfinished, int part, const Manifest& manifest) {
  HANJI_ASSIGN_OR_RETURN(const std::string text, to_text(manifest));
  return base::write_file_atomic(record_path(unfinished, part), text);
}

// What a part has written goes first: where the disk is full there is room for the reason then.
Status give_up_part(const fs::path& unfinished, const Writer& writer, const Status& status) {
  for (const StateKind kind : {StateKind::kModel, StateKind::kOptimizer}) {
    HANJI_RETURN_IF_ERROR(
        base::remove_tree(unfinished / file_name(kind, writer.part, writer.num_parts)));
  }
  return base::write_file_atomic(record_path(unfinished, writer.part),
                                 std::string(kFailed) + status.to_string());
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

std::vector<StatePart> parts_of(std::span<const NamedTensor> tensors) {
  std::vector<StatePart> parts;
  for (const NamedTensor& tensor : tensors) {
    const auto count = static_cast<int64_t>(tensor.bytes.size() /
                                            static_cast<size_t>(base::size_of(tensor.dtype)));
    parts.push_back({tensor.name,
                     tensor.dtype,
                     tensor.shape,
                     {.size = count},
                     [from = tensor.bytes](int64_t first, std::span<std::byte> to) {
                       std::memcpy(to.data(), from.data() + first, to.size());
                     }});
  }
  return parts;
}

int64_t State::num_bytes() const {
  int64_t bytes = 0;
  for (const auto* parts : {&model, &optimizer}) {
    for (const StatePart& part : *parts) bytes += part.num_bytes();
  }
  return bytes;
}

Status check_room(const fs::path& folder, const SaveOptions& options, const SaveSize& size) {
  const int64_t records = size.num_tensors * options.writer.num_parts;
  const int64_t need = size.bytes + kRoomOfManifest + kRoomOfTensor * records;
  HANJI_ASSIGN_OR_RETURN(const int64_t free, base::free_bytes(folder));
  if (free >= need) return {};
  return base::out_of_memory(fmt::format(
      "{}: a checkpoint takes {}, with headers and manifest about {}, and the disk has {} free; "
      "make room{}",
      folder.native(), base::format_bytes(size.bytes), base::format_bytes(need),
      base::format_bytes(free), options.keep > 1 ? " or lower checkpoint.keep" : ""));
}

Status begin_checkpoint(const SaveOptions& options, int64_t step, const SaveSize& size) {
  HANJI_RETURN_IF_ERROR(check_options(options, step));
  HANJI_RETURN_IF_ERROR(base::make_directories(options.folder));
  HANJI_RETURN_IF_ERROR(sweep(options.folder));
  HANJI_RETURN_IF_ERROR(check_room(options.folder, options, size));
  return base::make_directories(unfinished_path(options.folder, step));
}

Status save_checkpoint(const SaveOptions& options, const State& state, Manifest manifest,
                       const SaveSteps& steps) {
  const Writer& writer = options.writer;
  const int64_t step = manifest.step;
  const fs::path unfinished = unfinished_path(options.folder, step);
  const auto write = [&]() -> Status {
    HANJI_RETURN_IF_ERROR(check_options(options, step));
    if (const auto text = to_text(manifest); !text.ok()) return text.status();
    if (writer.num_parts == 1) {
      HANJI_RETURN_IF_ERROR(begin_checkpoint(options, step, size_of(state)));
    }
    CopyBuffer own;
    internal::PartFiles files(state, writer, steps.buffer ? *steps.buffer : own);
    HANJI_RETURN_IF_ERROR(files.reserve(options.copy_bytes));
    do {
      files.copy();
      if (files.is_copied()) steps.copied();
      HANJI_RETURN_IF_ERROR(files.write(unfinished));
    } while (!files.is_copied());
    HANJI_ASSIGN_OR_RETURN(manifest.files, files.finish(unfinished));
    manifest.writer = base::version();
    return writer.part == 0 ? publish_all(options, unfinished, std::move(manifest), steps.stop)
                            : leave_record(unfinished, writer.part, manifest);
  };
  const Status status = write();
  if (!status.ok()) {
    const Status removed =
        writer.part == 0 ? base::remove_tree(unfinished) : give_up_part(unfinished, writer, status);
    return removed.ok() ? status : status.at("and " + removed.message());
  }
  if (writer.part != 0) return {};
  HANJI_RETURN_IF_ERROR(
      set_latest(options.folder, step).at("saved, but `latest` could not be written"));
  return prune(options, step).at("saved, but an old checkpoint could not be removed");
}

}  // namespace hanji::checkpoint
