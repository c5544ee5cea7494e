#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "hanji/comm/internal/engine.h"

namespace hanji::comm {

/// How calls were carried out, by all that tells two choices of one group apart. Bounded: what was
/// used least recently goes first, one generation of kKept at a time.
///
/// Cost    a call like the last one found: a comparison; any other: one look-up.
/// Thread  one at a time.
class ChoiceTable {
 public:
  using Entry = std::shared_ptr<const Choice>;

  /// Null where none is kept. Valid until the next call of the table.
  const Entry* find(const Request& request);
  const Entry& insert(const Request& request, Choice choice);
  size_t size() const { return young_.size() + old_.size(); }

  /// Entries of a generation; there are two.
  static constexpr size_t kKept = 256;

 private:
  struct Key {
    schedule::Routine routine;
    schedule::ReduceOp op;
    DType dtype;
    bool in_place;
    int root;
    int64_t count;
    std::vector<int64_t> counts;

    explicit Key(const Request& request);
    bool is_of(const Request& request) const;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  using Map = std::unordered_map<Key, Entry, Hash>;

  const Entry& keep(Key&& key, Entry entry);

  Map young_;
  Map old_;
  const Map::value_type* last_ = nullptr;  // in young_
};

}  // namespace hanji::comm
