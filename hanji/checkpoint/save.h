#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/checkpoint/manifest.h"
#include "hanji/checkpoint/named_tensor.h"

namespace hanji::checkpoint {

/// A tensor, or runs of its elements, that a rank saves.
struct StatePart {
  std::string name;  ///< Of the tensor.
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape = {};     ///< Of the whole tensor.
  layout::StridedRange elements = {};  ///< Those that are saved, in C order.
  /// Copies bytes of these elements, from `first_byte` on. Keeps alive what it reads.
  std::function<void(int64_t first_byte, std::span<std::byte> to)> read = {};

  int64_t num_bytes() const {
    return elements.num_elements() * static_cast<int64_t>(base::size_of(dtype));
  }
};

/// Whole tensors whose bytes outlive the parts.
std::vector<StatePart> parts_of(std::span<const NamedTensor> tensors);

/// What one rank saves of everything that training changes.
struct State {
  std::vector<StatePart> model;
  std::vector<StatePart> optimizer;

  int64_t num_bytes() const;
};

/// How much a checkpoint holds, all its parts together.
struct SaveSize {
  int64_t bytes = 0;        ///< Bytes of the tensors.
  int64_t num_tensors = 0;  ///< Each may lie in every part.
};

/// One of the ranks that write a checkpoint together, each its own files.
struct Writer {
  int part = 0;  ///< In [0, num_parts); part 0 publishes what all have written.
  int num_parts = 1;
  WriterRecord record = {};
};

struct SaveOptions {
  std::filesystem::path folder;  ///< DIR/checkpoints.
  int keep = 3;                  ///< The last so many stay; at least 1.
  bool keep_best = true;         ///< So does the one with the lowest validation loss.
  Writer writer = {};
  /// Memory that the state is copied to on its way; less than the state: it is written piece by
  /// piece, and changes no earlier than the last piece is copied.
  int64_t copy_bytes = std::numeric_limits<int64_t>::max();
  std::chrono::nanoseconds timeout = std::chrono::seconds(300);  ///< Of part 0 for the other parts.
};

/// Memory that saves use one after the other; it grows as they need it.
struct CopyBuffer {
  std::unique_ptr<std::byte[]> memory = nullptr;
  int64_t bytes = 0;
};

/// How save_checkpoint() works beside a training.
struct SaveSteps {
  std::function<void()> copied = [] {};  ///< The state may change.
  std::stop_token stop = {};             ///< Part 0 gives up waiting for others.
  CopyBuffer* buffer = nullptr;          ///< Null: memory of its own.
};

/// Compares what a checkpoint takes, with headers and manifest, with what the disk of `folder` has.
/// Errors  kOutOfMemory with both values; those of base::free_bytes().
Status check_room(const std::filesystem::path& folder, const SaveOptions& options,
                  const SaveSize& size);

/// Makes room for a checkpoint of several parts, before any of them is saved; part 0 alone. A
/// checkpoint of one part needs no such call.
/// Errors  check_room(); kInvalidArgument for a step or keep that makes no sense.
Status begin_checkpoint(const SaveOptions& options, int64_t step, const SaveSize& size);

/// Saves a checkpoint, or a part of one: it appears whole by one rename after everything is on the
/// disk, or not at all, and `latest` follows. A checkpoint of the same step is replaced. Then the
/// ones that are neither among the last nor the best go.
///
/// Cost    each part is written once and read once for its checksums (from the page cache).
/// Errors  kOutOfMemory before anything is written when the disk has too little room, or later
///         when it fills up; kInvalidArgument for tensors that no file can hold; kTimeout, naming
///         the part that did not come; the error of another part, with its code; others from the system. The
///         checkpoints that were there stay, and what was half written is removed.
/// Thread  one save at a time into one folder; of one checkpoint's parts each in any process.
Status save_checkpoint(const SaveOptions& options, const State& state, Manifest manifest,
                       const SaveSteps& steps = {});

}  // namespace hanji::checkpoint
