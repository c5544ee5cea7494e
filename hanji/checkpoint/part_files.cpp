#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "hanji/base/units.h"
#include "hanji/checkpoint/internal/part_files.h"

namespace hanji::checkpoint::internal {
namespace {

struct Sorted {
  std::string name;  ///< In the file.
  DType dtype;
  const StatePart* part;
  TensorRecord record;
};

std::vector<Sorted> in_file_order(const std::vector<StatePart>& parts) {
  std::vector<Sorted> sorted;
  for (const StatePart& part : parts) {
    TensorRecord record{part.name, part.dtype, part.shape, part.elements};
    sorted.push_back({record.form().name, part.dtype, &part, std::move(record)});
  }
  sort_for_file(sorted);
  return sorted;
}

}  // namespace

PartFiles::PartFiles(const State& state, const Writer& writer, CopyBuffer& buffer)
    : writer_(writer.record), part_(writer.part), num_parts_(writer.num_parts), buffer_(buffer) {
  add_file(StateKind::kModel, state.model);
  add_file(StateKind::kOptimizer, state.optimizer);
}

void PartFiles::add_file(StateKind kind, const std::vector<StatePart>& parts) {
  if (parts.empty() && num_parts_ > 1) return;
  for (Sorted& sorted : in_file_order(parts)) {
    slots_.push_back({files_.size(), sorted.part, std::move(sorted.record), {}});
  }
  files_.push_back({.name = file_name(kind, part_, num_parts_), .writer = writer_});
}

Status PartFiles::reserve(int64_t copy_bytes) {
  int64_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.part->num_bytes();
  bytes = std::min(bytes, copy_bytes);
  if (bytes <= buffer_.bytes) return {};
  buffer_ = {};
  buffer_.memory.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
  if (buffer_.memory == nullptr) {
    return base::out_of_memory(fmt::format(
        "no memory for the {} copy that a checkpoint is written from", base::format_bytes(bytes)));
  }
  buffer_.bytes = bytes;
  return {};
}

void PartFiles::copy() {
  pieces_.clear();
  int64_t used = 0;
  while (!is_copied()) {
    const Slot& slot = slots_[copied_];
    const int64_t left = slot.part->num_bytes() - copied_bytes_;
    const int64_t now = std::min(left, buffer_.bytes - used);
    if (now == 0 && left > 0) return;
    const std::span to(buffer_.memory.get() + used, static_cast<size_t>(now));
    if (now > 0) slot.part->read(copied_bytes_, to);
    pieces_.push_back({copied_, to});
    used += now;
    copied_bytes_ += now;
    if (now < left) return;
    ++copied_;
    copied_bytes_ = 0;
  }
}

Status PartFiles::open(const std::filesystem::path& folder) {
  std::vector<TensorForm> forms;
  for (const Slot& slot : slots_) {
    if (slot.file == opened_) forms.push_back(slot.record.form());
  }
  HANJI_ASSIGN_OR_RETURN(auto file, SafetensorsWriter::create(folder / files_[opened_].name, forms,
                                                              {{"format", "pt"}}));
  open_.emplace(std::move(file));
  ++opened_;
  return {};
}

Status PartFiles::close() {
  if (!open_) return {};
  const Status status = open_->finish();
  open_.reset();
  return status;
}

Status PartFiles::write(const std::filesystem::path& folder) {
  for (const Piece& piece : std::exchange(pieces_, {})) {
    Slot& slot = slots_[piece.slot];
    while (opened_ <= slot.file) {
      HANJI_RETURN_IF_ERROR(close());
      HANJI_RETURN_IF_ERROR(open(folder));
    }
    slot.checksum.update(piece.bytes);
    HANJI_RETURN_IF_ERROR(open_->append(piece.bytes));
  }
  return {};
}

Result<std::vector<FileRecord>> PartFiles::finish(const std::filesystem::path& folder) {
  while (opened_ < files_.size()) {
    HANJI_RETURN_IF_ERROR(close());
    HANJI_RETURN_IF_ERROR(open(folder));
  }
  HANJI_RETURN_IF_ERROR(close());
  for (Slot& slot : slots_) {
    slot.record.checksum = slot.checksum.digest();
    files_[slot.file].tensors.push_back(slot.record);
  }
  for (FileRecord& record : files_) {
    HANJI_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(folder / record.name));
    record.size_bytes = file.size_bytes();
    record.header_checksum = base::xxh3(file.header());
    HANJI_RETURN_IF_ERROR(verify(record, file, Check::kContent).at("what was written"));
  }
  return files_;
}

}  // namespace hanji::checkpoint::internal
