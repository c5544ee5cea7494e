#include "hanji/schedule/internal/test_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/all_to_all.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/broadcast.h"
#include "hanji/schedule/catalogue.h"
#include "hanji/schedule/gather.h"
#include "hanji/schedule/grain_tree.h"
#include "hanji/schedule/internal/address_map.h"
#include "hanji/schedule/linear.h"
#include "hanji/schedule/reduce.h"
#include "hanji/schedule/reduce_scatter.h"
#include "hanji/schedule/scatter.h"
#include "hanji/schedule/send.h"
#include "hanji/schedule/tree_exchange.h"

namespace hanji::schedule::internal {

std::vector<int64_t> uneven_counts(int ranks, int64_t count) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < ranks; ++rank) counts.push_back(count * ((rank * 3 + 2) % 4) / 3);
  return counts;
}

std::vector<int64_t> uneven_pairs(int ranks, int64_t count) {
  std::vector<int64_t> counts;
  for (int i = 0; i < ranks * ranks; ++i) counts.push_back(count * ((i * 5 + 2) % 4) / 3);
  return counts;
}

namespace {

std::vector<StepList> uneven_lists(int ranks, int64_t count) {
  const int64_t chunk = count / 3 + 1;
  const int root = ranks - 1;
  const std::vector<int64_t> counts = uneven_counts(ranks, count);
  const std::vector<int64_t> pairs = uneven_pairs(ranks, count);
  return {all_gather_flat(counts),
          all_gather_direct(counts),
          all_gather_staged(counts, chunk),
          reduce_scatter_flat(counts),
          reduce_scatter_direct(counts),
          reduce_scatter_staged(counts, chunk),
          gather_flat(counts, root),
          gather_direct(counts, root),
          gather_staged(counts, root, chunk),
          scatter_flat(counts, root),
          scatter_direct(counts, root),
          scatter_staged(counts, root, chunk),
          all_to_all_flat(ranks, pairs),
          all_to_all_direct(ranks, pairs),
          all_to_all_staged(ranks, pairs, chunk),
          all_gather_linear(counts),
          gather_linear(counts, root),
          scatter_linear(counts, root),
          reduce_scatter_exchange(counts),
          all_to_all_linear(ranks, pairs)};
}

}  // namespace

std::vector<StepList> all_lists(int ranks, int64_t count) {
  const int64_t chunk = count / 3 + 1;
  const int root = ranks - 1;
  std::vector<StepList> lists = {all_reduce_flat(ranks, count),
                                 all_reduce_direct(ranks, count),
                                 all_reduce_staged(ranks, count, chunk),
                                 broadcast_flat(ranks, count, root),
                                 broadcast_direct(ranks, count, root),
                                 broadcast_staged(ranks, count, root, chunk),
                                 all_gather_flat(ranks, count),
                                 all_gather_direct(ranks, count),
                                 all_gather_staged(ranks, count, chunk),
                                 reduce_scatter_flat(ranks, count),
                                 reduce_scatter_direct(ranks, count),
                                 reduce_scatter_staged(ranks, count, chunk),
                                 barrier(ranks),
                                 tree_list(ranks, count),
                                 reduce_flat(ranks, count, root),
                                 reduce_direct(ranks, count, root),
                                 reduce_staged(ranks, count, root, chunk),
                                 gather_flat(ranks, count, root),
                                 gather_direct(ranks, count, root),
                                 gather_staged(ranks, count, root, chunk),
                                 scatter_flat(ranks, count, root),
                                 scatter_direct(ranks, count, root),
                                 scatter_staged(ranks, count, root, chunk),
                                 all_to_all_flat(ranks, count),
                                 all_to_all_direct(ranks, count),
                                 all_to_all_swap(ranks, count, chunk),
                                 all_to_all_staged(ranks, count, chunk),
                                 all_gather_linear(ranks, count),
                                 gather_linear(ranks, count, root),
                                 scatter_linear(ranks, count, root),
                                 all_to_all_linear(ranks, count),
                                 all_to_all_linear_in_place(ranks, count),
                                 reduce_exchange(ranks, count, root),
                                 tree_exchange(tree_list(ranks, count).owners, count)};
  for (StepList& list : uneven_lists(ranks, count)) lists.push_back(std::move(list));
  if (ranks == 2) {
    lists.insert(lists.end(), {send_flat(count), send_direct(count), send_staged(count, chunk),
                               send_message(count)});
  }
  const ListShape shape{root, 3, ranks % 2 == 0 ? 2 : 1};
  for (const Algorithm& one : message_algorithms()) {
    lists.push_back(one.make(ranks, count, shape));
  }
  return lists;
}

StepList tree_list(int ranks, int64_t count) {
  std::vector<layout::Range> owners;
  int64_t next = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t size = rank == 0 ? 5 : (rank * 7) % 4;  // 5 3 2 1 0 3 2 1 0 ...
    owners.push_back({next, next + size});
    next += size;
  }
  return tree_all_reduce(grain_tree(next, owners), count);
}

std::string describe(const StepList& list) {
  return fmt::format("{}{} {}, {} ranks, {} elements", list.counts.empty() ? "" : "uneven ",
                     name_of(list.routine), list.algorithm, list.ranks, list.count);
}

namespace {

class Interpreter {
 public:
  Interpreter(const StepList& list, const std::vector<std::vector<Tensor>>& inputs)
      : list_(list), inputs_(inputs), next_(list.ranks, 0), open_(list.ranks) {
    const auto filled = [&](Place place) {
      std::vector<Tensor> tensors;
      for (int rank = 0; rank < list.ranks; ++rank) {
        tensors.emplace_back(elements_of(list, rank, place), -1e30f);
      }
      return tensors;
    };
    outputs_ = filled(Place::kOutput);
    slots_ = filled(Place::kSlot);
    results_ = filled(Place::kResult);
  }

  std::vector<Tensor> run() {
    bool more = true;
    while (more) {
      for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < list_.ranks; ++rank) moved |= advance(rank);
      }
      more = false;
      for (int rank = 0; rank < list_.ranks; ++rank) {
        if (step(rank) && step(rank)->kind == StepKind::kSync) ++next_[rank], more = true;
      }
    }
    return outputs_;
  }

 private:
  const Step* step(int rank) const {
    const auto& steps = list_.per_rank[rank];
    return next_[rank] < steps.size() ? &steps[next_[rank]] : nullptr;
  }

  float* at(const Operand& operand) {
    switch (operand.place) {
      case Place::kInput: return inputs_[operand.rank][operand.part].data() + operand.begin;
      case Place::kOutput: return outputs_[operand.rank].data() + operand.begin;
      case Place::kSlot: return slots_[operand.rank].data() + operand.begin;
      case Place::kResult: return results_[operand.rank].data() + operand.begin;
    }
    return nullptr;
  }

  bool advance(int rank) {
    const Step* now = step(rank);
    if (!now || now->kind == StepKind::kSync) return false;
    if (is_message(now->kind)) return advance_group(rank);
    execute(*now);
    ++next_[rank];
    return true;
  }

  // Opens the group at which the rank stands, or moves one of its messages.
  bool advance_group(int rank) {
    if (open_[rank].empty()) {
      for (size_t i = next_[rank]; i < end_of_group(list_.per_rank[rank], next_[rank]); ++i) {
        open_[rank].push_back(i);
      }
      return true;
    }
    for (const size_t index : open_[rank]) {
      const Step& recv = list_.per_rank[rank][index];
      if (recv.kind != StepKind::kRecv) continue;
      for (const size_t sent : open_[recv.peer]) {
        const Step& send = list_.per_rank[recv.peer][sent];
        if (send.kind != StepKind::kSend || send.peer != rank) continue;
        std::copy_n(at(send.from[0]), recv.count, at(recv.to[0]));
        close(recv.peer, sent);
        close(rank, index);
        return true;
      }
    }
    return false;
  }

  void close(int rank, size_t index) {
    std::erase(open_[rank], index);
    if (open_[rank].empty()) next_[rank] = end_of_group(list_.per_rank[rank], next_[rank]);
  }

  void execute(const Step& now) {
    for (int64_t i = 0; i < now.count; ++i) {
      std::vector<float> stack;
      for (const int value : now.tree) {
        if (value >= 0) {
          stack.push_back(at(now.from[value])[i]);
          continue;
        }
        const float right = stack.back();
        stack.pop_back();
        stack.back() += right;
      }
      const float result = now.tree.empty() ? at(now.from[0])[i] : stack[0];
      for (const Operand& to : now.to) at(to)[i] = result;
    }
  }

  const StepList& list_;
  std::vector<std::vector<Tensor>> inputs_;
  std::vector<Tensor> outputs_, slots_, results_;
  std::vector<size_t> next_;
  std::vector<std::vector<size_t>> open_;  // messages of each rank's group, under way
};

}  // namespace

std::vector<Tensor> interpret(const StepList& list,
                              const std::vector<std::vector<Tensor>>& inputs) {
  return Interpreter(list, inputs).run();
}

std::vector<std::vector<Tensor>> rough_inputs(const StepList& list) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponent(-12, 12);
  std::vector<std::vector<Tensor>> inputs;
  const std::vector<int> parts = parts_per_rank(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    inputs.emplace_back();
    for (int part = 0; part < parts[rank]; ++part) {
      Tensor tensor(elements_of(list, rank, Place::kInput));
      for (float& value : tensor) value = std::exp2(exponent(random)) * (random() % 2 ? 1 : -1);
      inputs.back().push_back(std::move(tensor));
    }
  }
  return inputs;
}

float tree_sum(const std::vector<float>& values, size_t begin, size_t end) {
  if (end - begin == 1) return values[begin];
  size_t half = 1;
  while (2 * half < end - begin) half *= 2;
  return tree_sum(values, begin, begin + half) + tree_sum(values, begin + half, end);
}

}  // namespace hanji::schedule::internal
