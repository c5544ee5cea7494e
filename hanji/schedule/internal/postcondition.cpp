#include "hanji/schedule/internal/postcondition.h"

#include <fmt/format.h>

#include <algorithm>

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

Postcondition::Postcondition(const StepList& list, Symbols& symbols)
    : list_(list), symbols_(symbols) {
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
  if (!has_shares(list.routine)) return;
  for (int rank = 0; rank < list.ranks; ++rank) {
    given_.push_back(blocks_of(list, rank, Place::kInput));
    got_.push_back(blocks_of(list, rank, Place::kOutput));
  }
}

bool Postcondition::holds(const Value& value, int expr, int64_t shift, bool reduced) const {
  if (value.reduced != reduced) return false;
  if (value.expr == expr && value.shift == shift) return true;
  if (list_.keeps_order || !reduced) return false;
  // Any order: the same leaves, each once, whatever leaf the shift is counted from.
  auto found = symbols_.leaves(value.expr, sum_leaves_);
  for (auto& [name, delta] : found) delta += value.shift - shift;
  return found == symbols_.leaves(expr, sum_leaves_);
}

// A piece of a buffer of blocks. A piece holds one value, so it may not run over from one block
// into the next.
bool Postcondition::block_kept(int rank, const Piece& piece) const {
  const auto& blocks = got_[rank];
  const auto after =
      std::upper_bound(blocks.begin(), blocks.end(), piece.range.begin,
                       [](int64_t at, const layout::Range& block) { return at < block.end; });
  if (after == blocks.end() || piece.range.end > after->end) return false;
  const int owner = static_cast<int>(after - blocks.begin());
  const int64_t begin =
      list_.routine == Routine::kAllToAll ? given_[owner][rank].begin : int64_t{0};
  return holds(piece.value, inputs_[owner][0], begin - after->begin, false);
}

bool Postcondition::kept(int rank, const Piece& piece) const {
  switch (list_.routine) {
    case Routine::kBarrier: return true;
    case Routine::kSend: return holds(piece.value, inputs_[0][0], 0, false);
    case Routine::kBroadcast: return holds(piece.value, inputs_[list_.root][0], 0, false);
    case Routine::kAllReduce:
    case Routine::kReduce:
    case Routine::kTreeReduce: return holds(piece.value, sum_, 0, true);
    case Routine::kReduceScatter: return holds(piece.value, sum_, given_[rank][rank].begin, true);
    case Routine::kScatter:
      return holds(piece.value, inputs_[list_.root][0], given_[rank][rank].begin, false);
    case Routine::kAllGather:
    case Routine::kGather:
    case Routine::kAllToAll: return block_kept(rank, piece);
  }
  return true;
}

Status Postcondition::check(int rank, const Piece& piece) const {
  if (kept(rank, piece)) return {};
  return base::invalid_argument(
      fmt::format("element {} of rank {}'s output is not what {} promises", piece.range.begin, rank,
                  name_of(list_.routine)));
}

}  // namespace hanji::schedule::internal
