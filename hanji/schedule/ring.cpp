#include "hanji/schedule/ring.h"

#include <numeric>

#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/internal/ring_phases.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

Ring ring_of_all(const StepList& list, Range whole) {
  Ring ring{std::vector<int>(list.ranks), whole, list.kept.longest_path};
  std::iota(ring.members.begin(), ring.members.end(), 0);
  return ring;
}

}  // namespace

StepList all_reduce_ring(int ranks, int64_t count, Kept kept) {
  StepList list = open_list(Routine::kAllReduce, "ring", ranks, count);
  keep(list, kept);
  list.keeps_order = ranks <= 2;
  if (ranks == 1) {
    add_own_reduce(list);
    return list;
  }
  list.slot_elements = slice_of(count, ranks, 0).size();
  const Ring ring = ring_of_all(list, {0, count});
  add_ring_reduce(list, ring, Place::kInput, StepKind::kReduce);
  add_ring_gather(list, ring);
  return list;
}

StepList reduce_scatter_ring(int ranks, int64_t count, Kept kept) {
  StepList list = open_list(Routine::kReduceScatter, "ring", ranks, count);
  keep(list, kept);
  list.keeps_order = ranks <= 2;
  if (ranks == 1) {
    add_own_reduce(list);
    return list;
  }
  list.slot_elements = 2 * count;  // what arrives, and the sum that leaves next
  for (int round = 0; round + 1 < ranks; ++round) {
    const bool is_last = round + 2 == ranks;
    for (const int rank : ranks_of(list)) {
      const int leaving = (rank + 2 * ranks - 1 - round) % ranks;
      const int arriving = (leaving + ranks - 1) % ranks;
      const Operand slot{rank, Place::kSlot}, sum{rank, Place::kSlot, 0, count};
      const Operand own{rank, Place::kInput, 0, arriving * count};
      add_messages(
          list, rank,
          {send_to((rank + 1) % ranks,
                   round == 0 ? Operand{rank, Place::kInput, 0, leaving * count} : sum, count),
           receive_from((rank + ranks - 1) % ranks, slot, count)});
      const bool own_right = leaving < rank;  // the sum that arrives began at rank `leaving`
      add_pair(list, rank, is_last ? StepKind::kReduce : StepKind::kCombine,
               {own_right ? slot : own, own_right ? own : slot,
                is_last ? Operand{rank, Place::kOutput} : sum, count});
    }
  }
  return list;
}

StepList all_gather_ring(int ranks, int64_t count, Kept kept) {
  StepList list = open_list(Routine::kAllGather, "ring", ranks, count);
  keep(list, kept);
  for (const int rank : ranks_of(list)) {
    add_copy(list, rank, {rank, Place::kInput}, {{rank, Place::kOutput, 0, rank * count}}, count);
  }
  add_ring_gather(list, ring_of_all(list, {0, ranks * count}));
  return list;
}

StepList all_reduce_hierarchical(int ranks, int64_t count, int ranks_per_host, Kept kept) {
  require(ranks_per_host >= 1 && ranks % ranks_per_host == 0,
          "all_reduce_hierarchical needs ranks per host that divide the ranks");
  StepList list = open_list(Routine::kAllReduce, "hierarchical", ranks, count);
  keep(list, kept);
  list.keeps_order = ranks <= 2;
  list.parameter = ranks_per_host;
  if (ranks == 1) {
    add_own_reduce(list);
    return list;
  }
  const int hosts = ranks / ranks_per_host;
  std::vector<Ring> inside(hosts, {{}, {0, count}, kept.longest_path});
  for (int rank = 0; rank < ranks; ++rank) inside[rank / ranks_per_host].members.push_back(rank);
  std::vector<Ring> rails(ranks_per_host);
  for (int rank = 0; rank < ranks; ++rank) {
    Ring& ring = rails[rank % ranks_per_host];
    ring.even = kept.longest_path;
    ring.members.push_back(rank);
    ring.whole = slice_of(count, ranks_per_host, rank % ranks_per_host);
  }
  const bool alone = ranks_per_host == 1;
  list.slot_elements = slice_of(count, alone ? hosts : ranks_per_host, 0).size();
  for (const Ring& ring : inside) {
    add_ring_reduce(list, ring, Place::kInput, hosts == 1 ? StepKind::kReduce : StepKind::kCombine);
  }
  for (const Ring& ring : rails) {
    add_ring_reduce(list, ring, alone ? Place::kInput : Place::kOutput, StepKind::kReduce);
    add_ring_gather(list, ring);
  }
  for (const Ring& ring : inside) add_ring_gather(list, ring);
  return list;
}

}  // namespace hanji::schedule
