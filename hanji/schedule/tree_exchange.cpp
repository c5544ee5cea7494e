#include "hanji/schedule/tree_exchange.h"

#include <utility>
#include <vector>

#include "hanji/schedule/grain_tree.h"
#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/internal/partials.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

/// Where the pieces lie that a rank combines: its own partials at home, the others' in its slot.
struct Pieces {
  const GrainTree& tree;
  std::vector<Range> slices;

  int64_t room() const { return slices[0].size(); }
  Operand of(int rank, size_t partial) const {
    const auto& one = tree.partials[partial];
    if (one.rank == rank) return {rank, Place::kInput, one.part, slices[rank].begin};
    return {rank, Place::kSlot, 0, static_cast<int64_t>(partial) * room()};
  }
};

// What one rank sends to and receives from one peer: the peer's slice of each of its partials, its
// slice of each of theirs.
std::vector<Message> between(const Pieces& pieces, int rank, int peer) {
  std::vector<Message> messages;
  for (size_t i = 0; i < pieces.tree.partials.size(); ++i) {
    const auto& one = pieces.tree.partials[i];
    const Range theirs = pieces.slices[peer];
    if (one.rank == rank) {
      messages.push_back(
          send_to(peer, {rank, Place::kInput, one.part, theirs.begin}, theirs.size()));
    } else if (one.rank == peer) {
      messages.push_back(receive_from(peer, pieces.of(rank, i), pieces.slices[rank].size()));
    }
  }
  return messages;
}

void add_combine(StepList& list, const Pieces& pieces, int rank) {
  Step reduce;
  for (size_t i = 0; i < pieces.tree.partials.size(); ++i) {
    reduce.from.push_back(pieces.of(rank, i));
  }
  reduce.to = {{rank, Place::kOutput, 0, pieces.slices[rank].begin}};
  reduce.count = pieces.slices[rank].size();
  reduce.tree = pieces.tree.tree;
  add_reduce(list, rank, std::move(reduce));
}

}  // namespace

StepList tree_exchange(std::span<const Range> owners, int64_t count) {
  const int64_t num_grains = owners.empty() ? 0 : owners.back().end;
  base::throw_if_error(check_owners(num_grains, owners));
  const GrainTree tree = partial_tree(num_grains, owners);
  const int ranks = static_cast<int>(owners.size());
  StepList list = open_list(Routine::kTreeReduce, "exchange", ranks, count);
  list.owners.assign(owners.begin(), owners.end());
  Pieces pieces{tree, {}};
  for (int rank = 0; rank < ranks; ++rank) pieces.slices.push_back(slice_of(count, ranks, rank));
  list.slot_elements = static_cast<int64_t>(tree.partials.size()) * pieces.room();
  for (int round = 0; round < ranks; ++round) {
    for (int rank = 0; rank < ranks; ++rank) {
      const int peer = (round - rank + ranks) % ranks;
      if (peer != rank) add_messages(list, rank, between(pieces, rank, peer));
    }
  }
  for (int rank = 0; rank < ranks; ++rank) add_combine(list, pieces, rank);
  add_exchange(list, [&](int rank, int peer) {
    const Range mine = pieces.slices[rank];
    const Range theirs = pieces.slices[peer];
    return Exchange{{rank, Place::kOutput, 0, mine.begin},
                    mine.size(),
                    {rank, Place::kOutput, 0, theirs.begin},
                    theirs.size()};
  });
  return list;
}

}  // namespace hanji::schedule
