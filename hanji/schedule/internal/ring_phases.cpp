#include "hanji/schedule/internal/ring_phases.h"

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule::internal {
namespace {

// Whose steps the list has, by place in the ring.
std::vector<int> kept_members(const StepList& list, const Ring& ring) {
  std::vector<int> kept;
  for (int i = 0; i < ring.size(); ++i) {
    if (keeps(list, ring.members[i])) kept.push_back(i);
  }
  return kept;
}

}  // namespace

layout::Range Ring::slice(int index) const {
  const int place = (index + 2 * size()) % size();
  if (even) {
    const int64_t room = slice_of(whole.size(), size(), 0).size();
    return {whole.begin + place * room, whole.begin + (place + 1) * room};
  }
  const layout::Range range = slice_of(whole.size(), size(), place);
  return {whole.begin + range.begin, whole.begin + range.end};
}

void add_ring_reduce(StepList& list, const Ring& ring, Place source, StepKind last) {
  const int size = ring.size();
  const std::vector<int> kept = kept_members(list, ring);
  for (int round = 0; round + 1 < size && !kept.empty(); ++round) {
    for (const int i : kept) {
      const int rank = ring.members[i];
      const auto leaving = ring.slice(i - 1 - round), arriving = ring.slice(i - 2 - round);
      const Place from = round == 0 ? source : Place::kOutput;
      const Operand slot{rank, Place::kSlot}, own{rank, source, 0, arriving.begin};
      add_messages(
          list, rank,
          {send_to(ring.members[(i + 1) % size], {rank, from, 0, leaving.begin}, leaving.size()),
           receive_from(ring.members[(i + size - 1) % size], slot, arriving.size())});
      // The sum that arrives began at member first; the lower of the two begins goes to the left.
      const int first = (i + 2 * size - 1 - round) % size;
      add_pair(list, rank, round + 2 == size ? last : StepKind::kCombine,
               {first < i ? slot : own,
                first < i ? own : slot,
                {rank, Place::kOutput, 0, arriving.begin},
                arriving.size()});
    }
  }
}

void add_ring_gather(StepList& list, const Ring& ring) {
  const int size = ring.size();
  const std::vector<int> kept = kept_members(list, ring);
  for (int round = 0; round + 1 < size && !kept.empty(); ++round) {
    for (const int i : kept) {
      const int rank = ring.members[i];
      const auto leaving = ring.slice(i - round), arriving = ring.slice(i - 1 - round);
      add_messages(list, rank,
                   {send_to(ring.members[(i + 1) % size], {rank, Place::kOutput, 0, leaving.begin},
                            leaving.size()),
                    receive_from(ring.members[(i + size - 1) % size],
                                 {rank, Place::kOutput, 0, arriving.begin}, arriving.size())});
    }
  }
}

}  // namespace hanji::schedule::internal
