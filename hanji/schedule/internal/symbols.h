#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hanji/layout/range.h"

namespace hanji::schedule::internal {

/// What one element holds: expression `expr`, whose leaves are read at the element's own index
/// plus `shift` (plus a leaf's own delta inside the expression). expr < 0: nobody wrote it.
struct Value {
  int expr = -1;
  int64_t shift = 0;
  bool reduced = false;  ///< Has passed a reduce, so it is rounded and averaged.

  bool operator==(const Value&) const = default;
};

/// Expressions over leaves; equal expressions have equal numbers, so comparing costs nothing.
class Symbols {
 public:
  int leaf(int64_t name);
  /// The right side's leaves are read `delta` elements after the left side's.
  int combine(int left, int right, int64_t delta);
  Value combine(const Value& left, const Value& right);

  /// Leaves with their deltas, sorted: what is summed, whatever the order. Empty beyond `limit`.
  std::vector<std::pair<int64_t, int64_t>> leaves(int expr, int64_t limit) const;

 private:
  struct Node {
    int left = -1;
    int right = -1;
    int64_t delta = 0;  ///< Of a leaf: its name.
    bool operator==(const Node&) const = default;
  };
  struct Hash {
    size_t operator()(const Node& node) const;
  };

  int intern(const Node& node, int64_t size);

  std::vector<Node> nodes_;
  std::vector<int64_t> sizes_;  ///< Leaves below, saturating.
  std::unordered_map<Node, int, Hash> numbers_;
};

/// A value that fills `range`; indices are relative to where it was read.
struct Piece {
  layout::Range range;
  Value value;
};

/// One buffer as a map from intervals to values.
class SymbolicBuffer {
 public:
  /// Covers [begin, begin + count) in order; positions and shifts relative to begin.
  std::vector<Piece> read(int64_t begin, int64_t count) const;
  void write(int64_t begin, const std::vector<Piece>& pieces);

 private:
  void split(int64_t at);

  std::map<int64_t, std::pair<int64_t, Value>> values_;  ///< begin -> (end, value)
};

}  // namespace hanji::schedule::internal
