#include "hanji/schedule/pipeline.h"

#include <numeric>

#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/internal/halving_tree.h"
#include "hanji/schedule/internal/ring_phases.h"
#include "hanji/schedule/pairwise_tree.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

// The elements of some ranks' slices.
Range slices_of(const StepList& list, Range ranks) {
  return {slice_of(list.count, list.ranks, static_cast<int>(ranks.begin)).begin,
          slice_of(list.count, list.ranks, static_cast<int>(ranks.end) - 1).end};
}

// The scatter's longest path goes to the lower half at every split: the larger one, and the first
// split of the other half is no larger than this one's.
void add_longest_scatter(StepList& list) {
  const int rank = list.kept.rank;
  for (Range ranks{0, list.ranks}; ranks.size() > 1;) {
    const int64_t middle = ranks.begin + split_point(ranks.size());
    const Range lower{ranks.begin, middle}, upper{middle, ranks.end};
    const bool root_is_upper = list.root >= middle && list.root < ranks.end;
    const int64_t count = slices_of(list, root_is_upper ? lower : upper).size();
    add_messages(list, rank, {receive_from(list.root, {rank, Place::kOutput}, count)});
    ranks = lower;
  }
}

void copy_own(StepList& list) {
  const int root = list.root;
  add_copy(list, root, {root, Place::kInput}, {{root, Place::kOutput}}, list.count);
}

}  // namespace

StepList broadcast_one_by_one(int ranks, int64_t count, int root) {
  StepList list = open_broadcast("one_by_one", ranks, count, root);
  for (int i = 1; i < ranks; ++i) {
    const int rank = (root + i) % ranks;
    add_messages(list, root, {send_to(rank, {root, Place::kInput}, count)});
    add_messages(list, rank, {receive_from(root, {rank, Place::kOutput}, count)});
  }
  copy_own(list);
  return list;
}

StepList broadcast_all_at_once(int ranks, int64_t count, int root) {
  StepList list = open_broadcast("all_at_once", ranks, count, root);
  std::vector<Message> sends;
  for (int i = 1; i < ranks; ++i) {
    const int rank = (root + i) % ranks;
    sends.push_back(send_to(rank, {root, Place::kInput}, count));
    add_messages(list, rank, {receive_from(root, {rank, Place::kOutput}, count)});
  }
  add_messages(list, root, sends);
  copy_own(list);
  return list;
}

StepList broadcast_chain(int ranks, int64_t count, int root, int segments, Kept kept) {
  require(segments >= 1, "broadcast_chain needs at least 1 segment");
  StepList list = open_broadcast("chain", ranks, count, root);
  // The longest path goes down the chain with the first segment, the largest, and waits at its end
  // for the others.
  if (kept.longest_path) kept.rank = (root + ranks - 1) % ranks;
  keep(list, kept);
  list.parameter = segments;
  const Range first = slice_of(count, segments, 0);
  for (int i = 0; i + 2 < ranks && kept.longest_path; ++i) {
    add_messages(list, kept.rank, {receive_from(root, {kept.rank, Place::kOutput}, first.size())});
  }
  for (const int rank : ranks_of(list)) {
    const int i = (rank + ranks - root) % ranks, before = (rank + ranks - 1) % ranks;
    const Place source = i == 0 ? Place::kInput : Place::kOutput;
    for (int round = 0; round <= segments; ++round) {
      std::vector<Message> group;
      if (i > 0 && round < segments) {
        const Range in = slice_of(count, segments, round);
        group.push_back(receive_from(before, {rank, Place::kOutput, 0, in.begin}, in.size()));
      }
      if (i + 1 < ranks && round > 0) {
        const Range out = slice_of(count, segments, round - 1);
        group.push_back(send_to((rank + 1) % ranks, {rank, source, 0, out.begin}, out.size()));
      }
      add_messages(list, rank, group);
    }
  }
  copy_own(list);
  return list;
}

StepList broadcast_scatter_all_gather(int ranks, int64_t count, int root, Kept kept) {
  StepList list = open_broadcast("scatter_all_gather", ranks, count, root);
  keep(list, kept);
  copy_own(list);
  if (kept.longest_path) add_longest_scatter(list);
  for (const Split& one : halving_splits(ranks, root)) {
    if (kept.longest_path || !(keeps(list, one.keeper) || keeps(list, one.other))) continue;
    const auto [begin, end] = slices_of(list, one.ranks);
    add_messages(list, one.keeper,
                 {send_to(one.other, {one.keeper, Place::kOutput, 0, begin}, end - begin)});
    add_messages(list, one.other,
                 {receive_from(one.keeper, {one.other, Place::kOutput, 0, begin}, end - begin)});
  }
  Ring ring{std::vector<int>(ranks), {0, count}, kept.longest_path};
  std::iota(ring.members.begin(), ring.members.end(), 0);
  add_ring_gather(list, ring);
  return list;
}

}  // namespace hanji::schedule
