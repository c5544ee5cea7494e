#include "hanji/schedule/pipeline.h"

#include <numeric>

#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/internal/halving_tree.h"
#include "hanji/schedule/internal/ring_phases.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

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

StepList broadcast_chain(int ranks, int64_t count, int root, int segments) {
  require(segments >= 1, "broadcast_chain needs at least 1 segment");
  StepList list = open_broadcast("chain", ranks, count, root);
  list.parameter = segments;
  for (int i = 0; i < ranks; ++i) {
    const int rank = (root + i) % ranks, before = (rank + ranks - 1) % ranks;
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

StepList broadcast_scatter_all_gather(int ranks, int64_t count, int root) {
  StepList list = open_broadcast("scatter_all_gather", ranks, count, root);
  copy_own(list);
  for (const Split& one : halving_splits(ranks, root)) {
    const int64_t begin = slice_of(count, ranks, static_cast<int>(one.ranks.begin)).begin;
    const int64_t end = slice_of(count, ranks, static_cast<int>(one.ranks.end) - 1).end;
    add_messages(list, one.keeper,
                 {send_to(one.other, {one.keeper, Place::kOutput, 0, begin}, end - begin)});
    add_messages(list, one.other,
                 {receive_from(one.keeper, {one.other, Place::kOutput, 0, begin}, end - begin)});
  }
  Ring ring{std::vector<int>(ranks), {0, count}};
  std::iota(ring.members.begin(), ring.members.end(), 0);
  add_ring_gather(list, ring);
  return list;
}

}  // namespace hanji::schedule
