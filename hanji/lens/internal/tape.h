#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace hanji::lens {

/// A tensor without its memory: a view of a numbered storage.
struct Slot {
  int storage = -1;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;

  int64_t numel() const;
  /// Whether it is all of a storage of that many bytes, in the order of memory.
  bool is_whole(int64_t storage_bytes) const;
};

using SlotList = std::vector<std::optional<Slot>>;
/// An argument: a plain value, a tensor of the tape, or a list of those.
using Value = std::variant<c10::IValue, Slot, SlotList>;

/// One recorded operation.
struct Entry {
  c10::OperatorHandle handle;
  std::vector<Value> arguments;
  SlotList results;         ///< Every tensor among the results; set where it made that storage.
  std::vector<int> reads;   ///< Storages among the arguments.
  std::vector<int> writes;  ///< Storages that it wrote to or made.
  uint64_t draw = 0;        ///< Which of the construction's random operations; 0: none.

  std::string name() const { return handle.schema().name(); }
};

/// The memory of some tensors, and what was done to it.
struct Storage {
  int64_t bytes = 0;
  std::vector<int> entries;  ///< That wrote to it, or made it, in order.
  at::Tensor literal;        ///< Its first content, as bytes; undefined: zeros.
  std::string refused;       ///< The operation that cannot be repeated; empty: none.
};

/// What a construction asked of libtorch, as far as it made or changed tensors.
///
/// Order   an operation's values are those that its arguments had then: entries are repeated in
///         order, and only those that a result depends on.
struct Tape {
  uint64_t seed = 0;
  std::vector<Entry> entries;
  std::vector<Storage> storages;

  const Storage& storage(int number) const { return storages[static_cast<size_t>(number)]; }

  /// The entries that the content of a storage depends on, before entry `end`, in order.
  std::vector<int> needed(int storage, int end) const;

  /// A hash of all that the content of a tensor depends on, but for the seed: the same in every
  /// process that records the same construction.
  uint64_t fingerprint(const Slot& slot) const;

  /// The operation that cannot be repeated, of those a storage depends on; empty: none.
  std::string refused(int storage) const;
};

}  // namespace hanji::lens
