#include "hanji/schedule/binomial.h"

#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/internal/halving_tree.h"

namespace hanji::schedule {
namespace {

using namespace internal;

// Whether each rank but the root speaks for others too: it holds their shards in its slot.
std::vector<bool> speakers(int ranks, int root) {
  std::vector<bool> speaks(ranks);
  for (const Split& one : halving_splits(ranks, root)) speaks[one.keeper] = one.keeper != root;
  return speaks;
}

// The shards of the ranks that a split parts from their keeper.
struct Shards {
  int64_t begin = 0, count = 0;
};

Shards shards_of(const StepList& list, const Split& one) {
  return {one.ranks.begin * list.count, one.ranks.size() * list.count};
}

}  // namespace

StepList broadcast_binomial(int ranks, int64_t count, int root) {
  StepList list = open_broadcast("binomial", ranks, count, root);
  add_binomial_broadcast(list, root, Place::kInput);
  add_copy(list, root, {root, Place::kInput}, {{root, Place::kOutput}}, count);
  return list;
}

StepList reduce_binomial(int ranks, int64_t count, int root) {
  StepList list = open_list(Routine::kReduce, "binomial", ranks, count);
  set_root(list, root);
  if (ranks == 1) {
    add_own_reduce(list);
    return list;
  }
  list.slot_elements = 2 * count;
  add_binomial_reduce(list, root, Place::kOutput);
  return list;
}

StepList gather_binomial(int ranks, int64_t count, int root) {
  StepList list = open_list(Routine::kGather, "binomial", ranks, count);
  set_root(list, root);
  list.slot_elements = ranks * count;
  const std::vector<bool> speaks = speakers(ranks, root);
  const auto held_at = [&](int rank, int64_t begin) -> Operand {  // where shards from begin are
    if (rank == root) return {rank, Place::kOutput, 0, begin};
    if (speaks[rank]) return {rank, Place::kSlot, 0, begin};
    return {rank, Place::kInput};
  };
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank != root && !speaks[rank]) continue;
    add_copy(list, rank, {rank, Place::kInput}, {held_at(rank, rank * count)}, count);
  }
  const std::vector<Split> splits = halving_splits(ranks, root);
  for (auto one = splits.rbegin(); one != splits.rend(); ++one) {
    const Shards shards = shards_of(list, *one);
    add_messages(list, one->other,
                 {send_to(one->keeper, held_at(one->other, shards.begin), shards.count)});
    add_messages(list, one->keeper,
                 {receive_from(one->other, held_at(one->keeper, shards.begin), shards.count)});
  }
  return list;
}

StepList scatter_binomial(int ranks, int64_t count, int root) {
  StepList list = open_list(Routine::kScatter, "binomial", ranks, count);
  set_root(list, root);
  list.slot_elements = ranks * count;
  const std::vector<bool> speaks = speakers(ranks, root);
  const auto held_at = [&](int rank, int64_t begin) -> Operand {
    if (rank == root) return {rank, Place::kInput, 0, begin};
    if (speaks[rank]) return {rank, Place::kSlot, 0, begin};
    return {rank, Place::kOutput};
  };
  for (const Split& one : halving_splits(ranks, root)) {
    const Shards shards = shards_of(list, one);
    add_messages(list, one.keeper,
                 {send_to(one.other, held_at(one.keeper, shards.begin), shards.count)});
    add_messages(list, one.other,
                 {receive_from(one.keeper, held_at(one.other, shards.begin), shards.count)});
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank != root && !speaks[rank]) continue;
    add_copy(list, rank, held_at(rank, rank * count), {{rank, Place::kOutput}}, count);
  }
  return list;
}

StepList all_reduce_reduce_broadcast(int ranks, int64_t count) {
  StepList list = open_list(Routine::kAllReduce, "reduce_broadcast", ranks, count);
  if (ranks == 1) {
    add_own_reduce(list);
    return list;
  }
  list.slot_elements = 2 * count;
  add_binomial_reduce(list, 0, Place::kOutput);
  add_binomial_broadcast(list, 0, Place::kOutput);
  return list;
}

}  // namespace hanji::schedule
