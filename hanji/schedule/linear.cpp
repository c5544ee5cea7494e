#include "hanji/schedule/linear.h"

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

StepList all_gather(StepList list) {
  const std::vector<Range> blocks = blocks_of(list, 0, Place::kOutput);
  for (int rank = 0; rank < list.ranks; ++rank) {
    add_copy(list, rank, {rank, Place::kInput}, {{rank, Place::kOutput, 0, blocks[rank].begin}},
             blocks[rank].size());
  }
  add_exchange(list, [&](int rank, int peer) {
    return Exchange{{rank, Place::kInput},
                    blocks[rank].size(),
                    {rank, Place::kOutput, 0, blocks[peer].begin},
                    blocks[peer].size()};
  });
  return list;
}

StepList gather(StepList list, int root) {
  set_root(list, root);
  const std::vector<Range> blocks = blocks_of(list, root, Place::kOutput);
  std::vector<Message> arriving;
  for (int rank = 0; rank < list.ranks; ++rank) {
    const Operand to{root, Place::kOutput, 0, blocks[rank].begin};
    const int64_t count = blocks[rank].size();
    if (rank == root) {
      add_copy(list, root, {root, Place::kInput}, {to}, count);
    } else {
      add_messages(list, rank, {send_to(root, {rank, Place::kInput}, count)});
      arriving.push_back(receive_from(rank, to, count));
    }
  }
  add_messages(list, root, arriving);
  return list;
}

StepList scatter(StepList list, int root) {
  set_root(list, root);
  const std::vector<Range> blocks = blocks_of(list, root, Place::kInput);
  std::vector<Message> leaving;
  for (int rank = 0; rank < list.ranks; ++rank) {
    const Operand from{root, Place::kInput, 0, blocks[rank].begin};
    const int64_t count = blocks[rank].size();
    if (rank == root) {
      add_copy(list, root, from, {{root, Place::kOutput}}, count);
    } else {
      add_messages(list, rank, {receive_from(root, {rank, Place::kOutput}, count)});
      leaving.push_back(send_to(rank, from, count));
    }
  }
  add_messages(list, root, leaving);
  return list;
}

StepList all_to_all(StepList list) {
  list.in_place = false;
  std::vector<std::vector<Range>> given, got;
  for (int rank = 0; rank < list.ranks; ++rank) {
    given.push_back(blocks_of(list, rank, Place::kInput));
    got.push_back(blocks_of(list, rank, Place::kOutput));
    const Range own = given[rank][rank];
    add_copy(list, rank, {rank, Place::kInput, 0, own.begin},
             {{rank, Place::kOutput, 0, got[rank][rank].begin}}, own.size());
  }
  add_exchange(list, [&](int rank, int peer) {
    return Exchange{{rank, Place::kInput, 0, given[rank][peer].begin},
                    given[rank][peer].size(),
                    {rank, Place::kOutput, 0, got[rank][peer].begin},
                    got[rank][peer].size()};
  });
  return list;
}

}  // namespace

StepList all_gather_linear(int ranks, int64_t count) {
  return all_gather(open_list(Routine::kAllGather, "linear", ranks, count));
}
StepList all_gather_linear(const std::vector<int64_t>& counts) {
  return all_gather(
      open_list(Routine::kAllGather, "linear", static_cast<int>(counts.size()), counts));
}

StepList gather_linear(int ranks, int64_t count, int root) {
  return gather(open_list(Routine::kGather, "linear", ranks, count), root);
}
StepList gather_linear(const std::vector<int64_t>& counts, int root) {
  return gather(open_list(Routine::kGather, "linear", static_cast<int>(counts.size()), counts),
                root);
}

StepList scatter_linear(int ranks, int64_t count, int root) {
  return scatter(open_list(Routine::kScatter, "linear", ranks, count), root);
}
StepList scatter_linear(const std::vector<int64_t>& counts, int root) {
  return scatter(open_list(Routine::kScatter, "linear", static_cast<int>(counts.size()), counts),
                 root);
}

StepList all_to_all_linear(int ranks, int64_t count) {
  return all_to_all(open_list(Routine::kAllToAll, "linear", ranks, count));
}
StepList all_to_all_linear(int ranks, const std::vector<int64_t>& counts) {
  return all_to_all(open_list(Routine::kAllToAll, "linear", ranks, counts));
}

StepList all_to_all_linear_in_place(int ranks, int64_t count) {
  StepList list = open_list(Routine::kAllToAll, "linear_in_place", ranks, count);
  const std::vector<Range> blocks = blocks_of(list, 0, Place::kInput);
  const auto from = add_block_exchange(list, blocks);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int peer = 0; peer < ranks; ++peer) {
      add_copy(list, rank, from[rank][peer], {{rank, Place::kOutput, 0, blocks[peer].begin}},
               count);
    }
  }
  return list;
}

StepList reduce_exchange(int ranks, int64_t count, int root) {
  StepList list = open_list(Routine::kReduce, "exchange", ranks, count);
  set_root(list, root);
  std::vector<Range> blocks;
  for (int rank = 0; rank < ranks; ++rank) blocks.push_back(slice_of(count, ranks, rank));
  auto from = add_block_exchange(list, blocks);
  std::vector<Message> arriving;
  for (int rank = 0; rank < ranks; ++rank) {
    const Operand at_root{root, Place::kOutput, 0, blocks[rank].begin};
    const Operand sum = rank == root ? at_root : Operand{rank, Place::kResult};
    add_tree_reduce(list, rank, std::move(from[rank]), {sum}, blocks[rank].size());
    if (rank == root) continue;
    add_messages(list, rank, {send_to(root, sum, blocks[rank].size())});
    arriving.push_back(receive_from(rank, at_root, blocks[rank].size()));
  }
  add_messages(list, root, arriving);
  return list;
}

StepList send_message(int64_t count) {
  StepList list = open_list(Routine::kSend, "message", 2, count);
  add_messages(list, 0, {send_to(1, {0, Place::kInput}, count)});
  add_messages(list, 1, {receive_from(0, {1, Place::kOutput}, count)});
  return list;
}

}  // namespace hanji::schedule
