#include "hanji/schedule/internal/halving_tree.h"

#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/pairwise_tree.h"

namespace hanji::schedule::internal {
namespace {

void split(layout::Range ranks, int root, std::vector<Split>& splits) {
  if (ranks.size() < 2) return;
  const int64_t middle = ranks.begin + split_point(ranks.size());
  const layout::Range lower{ranks.begin, middle}, upper{middle, ranks.end};
  const bool root_is_upper = root >= middle && root < ranks.end;
  const bool root_is_here = root >= ranks.begin && root < ranks.end;
  Split one;
  one.keeper = root_is_here ? root : static_cast<int>(ranks.begin);
  one.ranks = root_is_upper ? lower : upper;
  one.other = static_cast<int>(one.ranks.begin);
  one.other_is_lower = root_is_upper;
  splits.push_back(one);
  split(lower, root, splits);
  split(upper, root, splits);
}

}  // namespace

std::vector<Split> halving_splits(int ranks, int root) {
  std::vector<Split> splits;
  split({0, ranks}, root, splits);
  return splits;
}

void add_binomial_reduce(StepList& list, int root, Place result) {
  const int64_t count = list.count;
  const std::vector<Split> splits = halving_splits(list.ranks, root);
  std::vector<bool> has_sum(list.ranks);
  const auto part_of = [&](int rank) {
    return has_sum[rank] ? Operand{rank, Place::kSlot, 0, count} : Operand{rank, Place::kInput};
  };
  for (auto at = splits.rbegin(); at != splits.rend(); ++at) {
    const Operand arrived{at->keeper, Place::kSlot}, own = part_of(at->keeper);
    const bool is_last = at + 1 == splits.rend();
    add_messages(list, at->other, {send_to(at->keeper, part_of(at->other), count)});
    add_messages(list, at->keeper, {receive_from(at->other, arrived, count)});
    has_sum[at->keeper] = true;
    add_pair(list, at->keeper, is_last ? StepKind::kReduce : StepKind::kCombine,
             {at->other_is_lower ? arrived : own, at->other_is_lower ? own : arrived,
              is_last ? Operand{root, result} : part_of(at->keeper), count});
  }
}

void add_binomial_broadcast(StepList& list, int root, Place source) {
  for (const Split& one : halving_splits(list.ranks, root)) {
    const Place from = one.keeper == root ? source : Place::kOutput;
    add_messages(list, one.keeper, {send_to(one.other, {one.keeper, from}, list.count)});
    add_messages(list, one.other,
                 {receive_from(one.keeper, {one.other, Place::kOutput}, list.count)});
  }
}

}  // namespace hanji::schedule::internal
