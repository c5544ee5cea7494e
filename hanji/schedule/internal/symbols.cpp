#include "hanji/schedule/internal/symbols.h"

#include <algorithm>

namespace hanji::schedule::internal {

constexpr int64_t kHuge = int64_t{1} << 40;

size_t Symbols::Hash::operator()(const Node& node) const {
  uint64_t hash = static_cast<uint32_t>(node.left);
  hash = (hash << 32 | static_cast<uint32_t>(node.right)) * 0x9E3779B97F4A7C15ull;
  hash = (hash ^ hash >> 29 ^ static_cast<uint64_t>(node.delta)) * 0xBF58476D1CE4E5B9ull;
  return hash ^ hash >> 32;
}

int Symbols::intern(const Node& node, int64_t size) {
  const auto [at, is_new] = numbers_.try_emplace(node, static_cast<int>(nodes_.size()));
  if (is_new) {
    nodes_.push_back(node);
    sizes_.push_back(size);
  }
  return at->second;
}

int Symbols::leaf(int64_t name) { return intern({-1, -1, name}, 1); }

int Symbols::combine(int left, int right, int64_t delta) {
  return intern({left, right, delta}, std::min(kHuge, sizes_[left] + sizes_[right]));
}

Value Symbols::combine(const Value& left, const Value& right) {
  return {combine(left.expr, right.expr, right.shift - left.shift), left.shift, true};
}

std::vector<std::pair<int64_t, int64_t>> Symbols::leaves(int expr, int64_t limit) const {
  std::vector<std::pair<int64_t, int64_t>> found;
  if (sizes_[expr] > limit) return found;
  std::vector<std::pair<int, int64_t>> open = {{expr, 0}};
  while (!open.empty()) {
    const auto [number, delta] = open.back();
    open.pop_back();
    const Node& node = nodes_[number];
    if (node.left < 0) {
      found.emplace_back(node.delta, delta);
    } else {
      open.emplace_back(node.left, delta);
      open.emplace_back(node.right, delta + node.delta);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<Piece> SymbolicBuffer::read(int64_t begin, int64_t count) const {
  std::vector<Piece> pieces;
  const int64_t end = begin + count;
  int64_t next = begin;
  const auto add = [&](int64_t until, Value value) {
    if (until <= next) return;
    if (value.expr >= 0) value.shift += begin;
    pieces.push_back({{next - begin, until - begin}, value});
    next = until;
  };
  auto at = values_.upper_bound(begin);
  if (at != values_.begin()) --at;
  for (; at != values_.end() && at->first < end; ++at) {
    if (at->second.first <= begin) continue;
    add(at->first, Value{});
    add(std::min(end, at->second.first), at->second.second);
  }
  add(end, Value{});
  return pieces;
}

// Makes `at` a border between two intervals if it lies inside one.
void SymbolicBuffer::split(int64_t at) {
  auto found = values_.upper_bound(at);
  if (found == values_.begin()) return;
  --found;
  const auto [end, value] = found->second;
  if (found->first == at || end <= at) return;
  found->second.first = at;
  values_.emplace(at, std::pair(end, value));
}

void SymbolicBuffer::write(int64_t begin, const std::vector<Piece>& pieces) {
  if (pieces.empty()) return;
  const int64_t first = begin + pieces.front().range.begin;
  const int64_t last = begin + pieces.back().range.end;
  split(first);
  split(last);
  values_.erase(values_.lower_bound(first), values_.lower_bound(last));
  for (const Piece& piece : pieces) {
    Value value = piece.value;
    value.shift -= begin;
    values_[begin + piece.range.begin] = {begin + piece.range.end, value};
  }
}

}  // namespace hanji::schedule::internal
