#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <vector>

#include "hanji/base/checksum.h"
#include "hanji/checkpoint/save.h"

namespace hanji::checkpoint::internal {

/// Writes the two files of one part of a checkpoint through a buffer.
///
/// Order   copy() and write() alternately until is_copied(), then finish().
class PartFiles {
 public:
  /// `state` and `buffer` outlive it.
  PartFiles(const State& state, const Writer& writer, CopyBuffer& buffer);

  /// Makes the buffer as large as the part, or `copy_bytes` where that is less.
  /// Errors  kOutOfMemory.
  Status reserve(int64_t copy_bytes);
  /// Fills the buffer with what comes next of the state.
  void copy();
  /// True when the state may change.
  bool is_copied() const { return copied_ == slots_.size(); }
  /// Writes what was copied into files of `folder`.
  Status write(const std::filesystem::path& folder);
  /// The files, on the disk and read again.
  /// Errors  kCorrupt, naming the tensor, when other bytes come back than were written.
  Result<std::vector<FileRecord>> finish(const std::filesystem::path& folder);

 private:
  /// A tensor of a file.
  struct Slot {
    size_t file = 0;
    const StatePart* part = nullptr;
    TensorRecord record = {};
    base::Xxh3 checksum = {};
  };
  /// Bytes of the buffer that belong to one slot.
  struct Piece {
    size_t slot = 0;
    std::span<const std::byte> bytes;
  };
  void add_file(StateKind kind, const std::vector<StatePart>& parts);
  Status open(const std::filesystem::path& folder);
  Status close();

  WriterRecord writer_;
  int part_ = 0;
  int num_parts_ = 1;
  std::vector<FileRecord> files_;
  std::vector<Slot> slots_;  ///< In the order of the files.
  CopyBuffer& buffer_;
  std::vector<Piece> pieces_;  ///< Copied and not yet written.
  size_t copied_ = 0;          ///< Slots that are copied whole,
  int64_t copied_bytes_ = 0;   ///< and bytes of the next one.
  size_t opened_ = 0;          ///< Files that were opened so far.
  std::optional<SafetensorsWriter> open_;
};

}  // namespace hanji::checkpoint::internal
