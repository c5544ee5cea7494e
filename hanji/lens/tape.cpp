#include "hanji/lens/internal/tape.h"

#include <bit>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "hanji/base/checksum.h"

namespace hanji::lens {
namespace {

/// Text that tells two recordings apart. Storages have the numbers in which they are met, so that
/// what else a constructor made does not count.
class Fingerprint {
 public:
  explicit Fingerprint(const Tape& tape) : tape_(tape) {}

  void describe(const Entry& entry) {
    add(entry.name());
    add(entry.handle.schema().overload_name());
    add(entry.draw);
    for (const Value& value : entry.arguments) {
      if (const auto* slot = std::get_if<Slot>(&value)) {
        describe(*slot);
      } else if (const auto* slots = std::get_if<SlotList>(&value)) {
        describe(*slots);
      } else {
        describe(std::get<c10::IValue>(value));
      }
    }
    describe(entry.results);
  }

  void describe(const Slot& slot) {
    const auto [place, is_new] =
        numbers_.try_emplace(slot.storage, static_cast<int64_t>(numbers_.size()));
    add(place->second);
    if (is_new) describe_storage(tape_.storage(slot.storage));
    add(slot.dtype);
    add(slot.offset);
    for (const int64_t size : slot.sizes) add(size);
    for (const int64_t stride : slot.strides) add(stride);
  }

  uint64_t hash() const { return base::xxh3(std::as_bytes(std::span(text_))); }

 private:
  void describe(const SlotList& slots) {
    add(slots.size());
    for (const auto& slot : slots) {
      add(slot.has_value());
      if (slot) describe(*slot);
    }
  }

  /// Plain values by their bits; of others, which no element depends on, what they are.
  void describe(const c10::IValue& value) {
    add(value.tagKind());
    if (value.isInt()) add(value.toInt());
    if (value.isBool()) add(value.toBool());
    if (value.isDouble()) add(std::bit_cast<uint64_t>(value.toDouble()));
    if (value.isString()) add(value.toStringRef());
    if (value.isTensor() && value.toTensor().defined())
      describe_bytes(value.toTensor().contiguous());
    if (!value.isList()) return;
    for (const c10::IValue& element : value.toListRef()) describe(element);
  }

  void describe_storage(const Storage& storage) {
    add(storage.bytes);
    if (storage.literal.defined()) describe_bytes(storage.literal);
  }

  void describe_bytes(const at::Tensor& tensor) {
    add(std::string_view(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()));
  }

  void add(std::string_view text) {
    add(text.size());
    text_ += text;
  }
  template <class Number>
  requires std::is_arithmetic_v<Number> || std::is_enum_v<Number>
  void add(Number number) { text_.append(reinterpret_cast<const char*>(&number), sizeof(number)); }

  const Tape& tape_;
  std::unordered_map<int, int64_t> numbers_;
  std::string text_;
};

}  // namespace

int64_t Slot::numel() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

bool Slot::is_whole(int64_t storage_bytes) const {
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != stride) return false;
    stride *= sizes[i];
  }
  return offset == 0 && numel() * static_cast<int64_t>(c10::elementSize(dtype)) == storage_bytes;
}

std::vector<int> Tape::needed(int storage, int end) const {
  std::set<int> found;
  std::unordered_map<int, int> known;  // per storage, the end up to which it was followed
  std::vector<std::pair<int, int>> open = {{storage, end}};
  while (!open.empty()) {
    const auto [number, until] = open.back();
    open.pop_back();
    int& followed = known.try_emplace(number, -1).first->second;
    if (followed >= until) continue;
    followed = until;
    for (const int entry : this->storage(number).entries) {
      if (entry >= until || !found.insert(entry).second) continue;
      const Entry& own = entries[static_cast<size_t>(entry)];
      for (const int read : own.reads) open.emplace_back(read, entry);
      // What it made or wrote beside: the results of one operation come together.
      for (const int written : own.writes) open.emplace_back(written, entry);
    }
  }
  return {found.begin(), found.end()};
}

uint64_t Tape::fingerprint(const Slot& slot) const {
  Fingerprint fingerprint(*this);
  for (const int entry : needed(slot.storage, static_cast<int>(entries.size()))) {
    fingerprint.describe(entries[static_cast<size_t>(entry)]);
  }
  fingerprint.describe(slot);
  return fingerprint.hash();
}

std::string Tape::refused(int storage) const {
  for (const int entry : needed(storage, static_cast<int>(entries.size()))) {
    const Entry& own = entries[static_cast<size_t>(entry)];
    for (const auto* storages : {&own.reads, &own.writes}) {
      for (const int number : *storages) {
        if (!this->storage(number).refused.empty()) return this->storage(number).refused;
      }
    }
  }
  return this->storage(storage).refused;
}

}  // namespace hanji::lens
