#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "hanji/layout/range.h"

namespace hanji::layout {

/// How ranks of which each has tokens of every sample compute attention, whose queries meet keys and values of
/// all tokens.
enum class ContextWay : uint8_t {
  kAuto,     ///< The cheaper one; until a plan has chosen, kUlysses.
  kUlysses,  ///< Queries, keys and values move to parts by heads, and what attention gives moves back.
  kRing,     ///< Keys and values pass through all ranks; parts of the softmax are merged.
};
inline constexpr std::array<std::string_view, 3> kContextWayNames = {"auto", "ulysses", "ring"};

/// Attention of one sample on the ranks of an axis that has parts of its tokens.
struct ContextAttention {
  int64_t tokens = 256;
  int64_t heads = 8;     ///< Of queries.
  int64_t kv_heads = 8;  ///< Of keys and values, a divisor of heads.
  int64_t width = 64;    ///< Of a head.
  int ranks = 1;
};

/// The tokens of rank `rank`, ascending. Ulysses: one range, as even as can be, lower ranks first. Ring: of
/// 2 x ranks such ranges number `rank` from the front and from the back, so that under a causal mask every
/// rank multiplies as much.
/// Source  zigzag order: Zhu, ring-flash-attention, 2024; Llama 3, arXiv 2407.21783, section 3.3.2.
std::vector<Range> context_tokens(int64_t tokens, int rank, int ranks, ContextWay way);

/// The number of those of each rank.
std::vector<int64_t> context_extents(int64_t tokens, int ranks, ContextWay way);

/// How often Ulysses has each head of keys and values, so that each rank has whole ones: the least divisor
/// of the queries that share one head with which there are as many heads as ranks.
int64_t context_repeats(const ContextAttention& attention);

/// Heads of queries that each rank has under Ulysses, as even as whole groups allow, lower ranks first.
std::vector<int64_t> context_heads(const ContextAttention& attention);

/// One all_to_all of attention, of one sample.
struct ContextCall {
  std::vector<int64_t> counts;  ///< Elements from each rank to each, `from` by `from`; its own too.
  bool is_backward = false;
  bool is_sum = false;  ///< Of gradients, in float32 or wider.

  /// Elements that all ranks together send to others.
  int64_t sent() const;
};

/// In the order of a forward and backward.
/// Result  exact, for sizes that the ranks do not divide too.
///         Ulysses: queries, keys and values there, attention back, and the reverse backward. Ring of n ranks:
///         keys and values n - 1 times to the rank before, and backward these and sums of their gradients.
std::vector<ContextCall> context_calls(const ContextAttention& attention, ContextWay way);

}  // namespace hanji::layout
