#include "hanji/layout/context.h"

#include <algorithm>
#include <cmath>

#include "hanji/layout/axial_block.h"

namespace hanji::layout {
namespace {

/// Range `index` of `count` of [0, size), as even as can be, lower ones first.
Range even_range(int64_t size, int index, int count) {
  const int64_t begin = size / count * index + std::min<int64_t>(index, size % count);
  return {begin, begin + axial_rows(size, index, count)};
}

/// Range `index` of a ring's 2 x `ranks`. One token more have the front ranges of lower ranks first, then
/// their back ranges, so that no rank has more tokens than a lower one.
Range ring_range(int64_t size, int index, int ranks) {
  const int count = 2 * ranks;
  const auto size_of = [&](int range) {
    const int turn = range < ranks ? range : count - 1 - range + ranks;
    return axial_rows(size, turn, count);
  };
  int64_t begin = 0;
  for (int before = 0; before < index; ++before) begin += size_of(before);
  return {begin, begin + size_of(index)};
}

/// [tokens, columns] cut by tokens, then by columns.
ContextCall turned(const std::vector<int64_t>& from, const std::vector<int64_t>& to,
                   bool is_backward) {
  ContextCall call{.is_backward = is_backward};
  for (const int64_t given : from) {
    for (const int64_t taken : to) call.counts.push_back(given * taken);
  }
  return call;
}

std::vector<ContextCall> ulysses_calls(const ContextAttention& attention) {
  const auto tokens = context_extents(attention.tokens, attention.ranks, ContextWay::kUlysses);
  const int64_t group = attention.heads / (attention.kv_heads * context_repeats(attention));
  std::vector<int64_t> projected, attended;
  for (const int64_t heads : context_heads(attention)) {
    projected.push_back((heads + 2 * (heads / group)) * attention.width);
    attended.push_back(heads * attention.width);
  }
  return {turned(tokens, projected, false), turned(attended, tokens, false),
          turned(tokens, attended, true), turned(projected, tokens, true)};
}

/// Of what belongs to step `step` of a ring, to the rank before.
ContextCall passed(const ContextAttention& attention, int step, bool is_backward, bool is_sum) {
  const int ranks = attention.ranks;
  const auto tokens = context_extents(attention.tokens, ranks, ContextWay::kRing);
  ContextCall call{std::vector<int64_t>(static_cast<size_t>(ranks) * ranks), is_backward, is_sum};
  for (int from = 0; from < ranks; ++from) {
    call.counts[from * ranks + (from + ranks - 1) % ranks] =
        2 * attention.kv_heads * attention.width * tokens[(from + step) % ranks];
  }
  return call;
}

std::vector<ContextCall> ring_calls(const ContextAttention& attention) {
  std::vector<ContextCall> calls;
  for (int step = 0; step + 1 < attention.ranks; ++step) {
    calls.push_back(passed(attention, step, false, false));
  }
  for (int step = 0; step < attention.ranks; ++step) {
    if (step + 1 < attention.ranks) calls.push_back(passed(attention, step, true, false));
    if (step > 0) calls.push_back(passed(attention, step, true, true));
  }
  return calls;
}

}  // namespace

std::vector<Range> context_tokens(int64_t tokens, int rank, int ranks, ContextWay way) {
  if (ranks == 1) return {{0, tokens}};
  if (way != ContextWay::kRing) return {even_range(tokens, rank, ranks)};
  return {ring_range(tokens, rank, ranks), ring_range(tokens, 2 * ranks - 1 - rank, ranks)};
}

std::vector<int64_t> context_extents(int64_t tokens, int ranks, ContextWay way) {
  std::vector<int64_t> extents;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t& sum = extents.emplace_back();
    for (const Range one : context_tokens(tokens, rank, ranks, way)) sum += one.size();
  }
  return extents;
}

int64_t context_repeats(const ContextAttention& attention) {
  const int64_t group = attention.heads / attention.kv_heads;
  for (int64_t repeats = 1; repeats < group; ++repeats) {
    if (group % repeats == 0 && attention.kv_heads * repeats >= attention.ranks) return repeats;
  }
  return group;
}

std::vector<int64_t> context_heads(const ContextAttention& attention) {
  const int64_t kv_heads = attention.kv_heads * context_repeats(attention);
  std::vector<int64_t> heads;
  for (int rank = 0; rank < attention.ranks; ++rank) {
    heads.push_back(axial_rows(kv_heads, rank, attention.ranks) * (attention.heads / kv_heads));
  }
  return heads;
}

int64_t ContextCall::sent() const {
  const auto ranks = static_cast<size_t>(std::llround(std::sqrt(counts.size())));
  int64_t sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) sum += i / ranks == i % ranks ? 0 : counts[i];
  return sum;
}

std::vector<ContextCall> context_calls(const ContextAttention& attention, ContextWay way) {
  if (attention.ranks == 1) return {};
  return way == ContextWay::kRing ? ring_calls(attention) : ulysses_calls(attention);
}

}  // namespace hanji::layout
