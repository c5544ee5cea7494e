#include <gtest/gtest.h>

#include <random>

#include "hanji/schedule/check.h"
#include "hanji/schedule/internal/test_lists.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule {
namespace {

using internal::describe;
using internal::interpret;
using internal::rough_inputs;

enum class Mutation {
  kDrop,
  kRepeat,
  kSwap,
  kCount,
  kBegin,
  kRank,
  kPlace,
  kTree,
  kPeer,
  kOperand,
  kJoin
};

constexpr Mutation kMutations[] = {Mutation::kDrop,    Mutation::kRepeat, Mutation::kSwap,
                                   Mutation::kCount,   Mutation::kBegin,  Mutation::kRank,
                                   Mutation::kPlace,   Mutation::kTree,   Mutation::kPeer,
                                   Mutation::kOperand, Mutation::kJoin};

using Random = std::mt19937;

template <class T>
T& pick(std::vector<T>& items, Random& random) {
  return items[random() % items.size()];
}

// Changes one operand; false if the step has none.
bool mutate_operand(Step& step, Mutation mutation, Random& random) {
  auto& operands = step.from.empty() || (!step.to.empty() && random() % 2) ? step.to : step.from;
  if (operands.empty()) return false;
  Operand& operand = pick(operands, random);
  switch (mutation) {
    case Mutation::kBegin: operand.begin += random() % 2 ? 1 : -1; return true;
    case Mutation::kRank: operand.rank += random() % 2 ? 1 : -1; return true;
    case Mutation::kPlace:
      operand.place = static_cast<Place>((static_cast<int>(operand.place) + 1 + random() % 3) % 4);
      return true;
    default: operands.erase(operands.begin() + (&operand - operands.data())); return true;
  }
}

// One fault in one place; false if it does not apply there.
bool mutate(StepList& list, Mutation mutation, Random& random) {
  auto& steps = pick(list.per_rank, random);
  if (steps.empty()) return false;
  const size_t at = random() % steps.size();
  Step& step = steps[at];
  switch (mutation) {
    case Mutation::kDrop: steps.erase(steps.begin() + at); return true;
    case Mutation::kRepeat: steps.insert(steps.begin() + at, Step(step)); return true;
    case Mutation::kSwap:
      if (at + 1 == steps.size()) return false;
      std::swap(step, steps[at + 1]);
      return true;
    case Mutation::kCount: step.count += random() % 2 ? 1 : -1; return true;
    case Mutation::kTree:
      if (step.tree.size() < 3) return false;
      std::swap(pick(step.tree, random), pick(step.tree, random));
      return true;
    case Mutation::kPeer: step.peer = step.peer == -1 ? 0 : -1; return true;
    case Mutation::kJoin: step.joined = !step.joined; return true;
    default: return mutate_operand(step, mutation, random);
  }
}

// A fault is refused. What check() lets pass is only another order of independent steps, other
// groups of messages or another place that holds the same elements; it runs to the same bits.
void expect_caught(const StepList& list, Mutation mutation, Random& random, int& caught) {
  if (mutation == Mutation::kTree && !list.keeps_order) return;  // another order is no fault
  StepList faulty = list;
  if (!mutate(faulty, mutation, random) || faulty == list) return;
  if (!check(faulty).ok()) {
    ++caught;
    return;
  }
  const auto inputs = rough_inputs(list);
  EXPECT_TRUE(mutation == Mutation::kSwap || mutation == Mutation::kPlace ||
              mutation == Mutation::kJoin)
      << describe(list);
  EXPECT_EQ(interpret(faulty, inputs), interpret(list, inputs)) << describe(list);
}

TEST(MutatedList, IsRefusedOrRunsToTheSameBits) {
  Random random(20);
  int caught = 0;
  for (const int ranks : {2, 3, 5}) {
    for (const StepList& list : internal::all_lists(ranks, 200)) {
      for (const Mutation mutation : kMutations) {
        for (int i = 0; i < 20; ++i) expect_caught(list, mutation, random, caught);
      }
    }
  }
  EXPECT_GT(caught, 4000);
}

TEST(MutatedList, ChangesTheResultIfItIsRunUnchecked) {
  StepList list = internal::all_lists(3, 200)[0];
  const auto inputs = rough_inputs(list);
  const auto right = interpret(list, inputs);
  StepList other_order = list;
  for (auto& steps : other_order.per_rank) steps.back().tree = {0, 1, 2, -1, -1};
  EXPECT_NE(interpret(other_order, inputs), right);
  StepList other_source = list;
  other_source.per_rank[1].back().from[0].rank = 2;
  EXPECT_NE(interpret(other_source, inputs), right);
}

using Inputs = std::vector<std::vector<internal::Tensor>>;

// Elements [begin, end) of the sum of all inputs, by the definition of the tree.
internal::Tensor sum_of(const Inputs& inputs, layout::Range range) {
  internal::Tensor sum;
  for (int64_t i = range.begin; i < range.end; ++i) {
    std::vector<float> column;
    for (const auto& parts : inputs) column.push_back(parts[0][i]);
    sum.push_back(internal::tree_sum(column, 0, column.size()));
  }
  return sum;
}

void append(internal::Tensor& to, const internal::Tensor& from, layout::Range range) {
  to.insert(to.end(), from.begin() + range.begin, from.begin() + range.end);
}

// What `rank` gets, said once more and without steps.
internal::Tensor due_to(int rank, const StepList& list, const Inputs& inputs) {
  internal::Tensor due;
  const bool gets = !has_root(list.routine) || list.routine == Routine::kBroadcast ||
                    list.routine == Routine::kScatter || rank == list.root;
  if (!gets) return due;
  switch (list.routine) {
    case Routine::kBroadcast: return inputs[list.root][0];
    case Routine::kSend: return rank == 1 ? inputs[0][0] : due;
    case Routine::kAllReduce:
    case Routine::kReduce: return sum_of(inputs, {0, list.count});
    case Routine::kReduceScatter: return sum_of(inputs, blocks_of(list, rank, Place::kInput)[rank]);
    case Routine::kScatter:
      append(due, inputs[list.root][0], blocks_of(list, rank, Place::kInput)[rank]);
      return due;
    case Routine::kAllGather:
    case Routine::kGather:
      for (const auto& parts : inputs) due.insert(due.end(), parts[0].begin(), parts[0].end());
      return due;
    case Routine::kAllToAll:
      for (int peer = 0; peer < list.ranks; ++peer) {
        append(due, inputs[peer][0], blocks_of(list, peer, Place::kInput)[rank]);
      }
      return due;
    case Routine::kBarrier:
    case Routine::kTreeReduce: break;
  }
  return due;
}

TEST(EveryList, LeavesWhatItsRoutineSaysToTheBit) {
  for (const int ranks : {1, 2, 3, 7, 16}) {
    for (const StepList& list : internal::all_lists(ranks, 131)) {
      if (list.routine == Routine::kTreeReduce) continue;        // grain_tree_test.cpp
      if (reduces(list.routine) && !list.keeps_order) continue;  // catalogue_test.cpp
      const auto inputs = rough_inputs(list);
      const auto outputs = interpret(list, inputs);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(outputs[rank], due_to(rank, list, inputs)) << describe(list) << " rank " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace hanji::schedule
