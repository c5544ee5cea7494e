#include "hanji/schedule/internal/promise.h"

#include <fmt/format.h>

#include "hanji/schedule/internal/partials.h"
#include "hanji/schedule/pairwise_tree.h"

namespace hanji::schedule::internal {
namespace {

// The definition of the order of every sum, over leaves begin..end-1.
int tree_over(Symbols& symbols, layout::Range leaves) {
  if (leaves.size() == 1) return symbols.leaf(leaves.begin);
  const int64_t middle = leaves.begin + split_point(leaves.size());
  const int left = tree_over(symbols, {leaves.begin, middle});
  return symbols.combine(left, tree_over(symbols, {middle, leaves.end}), 0);
}

}  // namespace

Promise::Promise(const StepList& list, Symbols& symbols) : list_(list), symbols_(symbols) {
  inputs_.resize(list.ranks);
  if (list.routine == Routine::kBarrier) return;
  if (list.routine == Routine::kTreeReduce) {
    const GrainTree tree = partial_tree(list.owners.back().end, list.owners);
    for (int rank = 0; rank < list.ranks; ++rank) {
      for (const layout::Range& partial : tree.ranks[rank].partials) {
        inputs_[rank].push_back(tree_over(symbols, partial));
      }
    }
    sum_leaves_ = tree.num_grains;
  } else {
    for (int rank = 0; rank < list.ranks; ++rank) inputs_[rank].push_back(symbols.leaf(rank));
    sum_leaves_ = list.ranks;
  }
  sum_ = tree_over(symbols, {0, sum_leaves_});
}

bool Promise::holds(const Value& value, int expr, int64_t shift, bool reduced) const {
  if (value.reduced != reduced) return false;
  if (value.expr == expr && value.shift == shift) return true;
  if (list_.keeps_order || !reduced) return false;
  // Any order: the same leaves, each once, whatever leaf the shift is counted from.
  auto found = symbols_.leaves(value.expr, sum_leaves_);
  for (auto& [name, delta] : found) delta += value.shift - shift;
  return found == symbols_.leaves(expr, sum_leaves_);
}

Status Promise::check(int rank, const Piece& piece) const {
  const auto fail = [&](int64_t element) {
    return base::invalid_argument(
        fmt::format("element {} of rank {}'s output is not what {} promises", element, rank,
                    name_of(list_.routine)));
  };
  switch (list_.routine) {
    case Routine::kBarrier: return {};
    case Routine::kBroadcast:
      if (!holds(piece.value, inputs_[list_.root][0], 0, false)) return fail(piece.range.begin);
      return {};
    case Routine::kAllReduce:
    case Routine::kTreeReduce:
      if (!holds(piece.value, sum_, 0, true)) return fail(piece.range.begin);
      return {};
    case Routine::kReduceScatter:
      if (!holds(piece.value, sum_, rank * list_.count, true)) return fail(piece.range.begin);
      return {};
    case Routine::kAllGather: {
      // A piece holds one value, so it may not run over from one rank's shard into the next.
      const int64_t owner = piece.range.begin / list_.count;
      const bool one_shard = (piece.range.end - 1) / list_.count == owner;
      if (!one_shard || !holds(piece.value, inputs_[owner][0], -owner * list_.count, false)) {
        return fail(piece.range.begin);
      }
      return {};
    }
  }
  return {};
}

}  // namespace hanji::schedule::internal
