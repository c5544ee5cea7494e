#include "hanji/schedule/double_tree.h"

#include <algorithm>
#include <array>
#include <bit>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

/// One of the two trees, by rank. The root has one child, the top of a binary tree.
struct Tree {
  std::vector<int> parent, depth;
  std::vector<std::vector<int>> children;  ///< The lower in order first.
  int deepest = 0;
};

using Name = std::vector<int>;  // the rank at each place 1..q in the order of a tree

// The tree over places [first, last]: the one with the most factors of two is on top, so places
// with an odd number are leaves.
void grow(Tree& tree, const Name& rank_at, Range places, int parent) {
  if (places.empty()) return;
  int top = static_cast<int>(places.begin);
  for (int i = top; i < places.end; ++i) {
    if (std::countr_zero(static_cast<unsigned>(i)) > std::countr_zero(static_cast<unsigned>(top))) {
      top = i;
    }
  }
  const int rank = rank_at[top];
  tree.parent[rank] = parent;
  tree.depth[rank] = tree.depth[parent] + 1;
  tree.deepest = std::max(tree.deepest, tree.depth[rank]);
  tree.children[parent].push_back(rank);
  grow(tree, rank_at, {places.begin, top}, rank);
  grow(tree, rank_at, {top + 1, places.end}, rank);
}

// The second tree is the first with every rank moved to a place of the other parity: mirrored for
// an even number of places, else shifted by one, which makes one rank a leaf of both.
std::array<Tree, 2> grow_two(int ranks, int root) {
  const int q = ranks - 1;
  std::array<Tree, 2> trees;
  for (int which = 0; which < 2; ++which) {
    Name rank_at(ranks);
    for (int i = 1; i <= q; ++i) {
      const int moved = q % 2 == 0 ? q + 1 - i : i % q + 1;
      rank_at[which == 0 ? i : moved] = (root + i) % ranks;
    }
    trees[which] = {std::vector<int>(ranks, -1), std::vector<int>(ranks), {}, 0};
    trees[which].children.resize(ranks);
    grow(trees[which], rank_at, {1, q + 1}, root);
  }
  return trees;
}

/// One half of the message and the tree that carries it.
struct Half {
  Tree tree;
  Range range;
  int segments = 1;

  /// Segment i, empty outside [0, segments).
  Range segment(int i) const {
    if (i < 0 || i >= segments) return {range.begin, range.begin};
    const Range piece = slice_of(range.size(), segments, i);
    return {range.begin + piece.begin, range.begin + piece.end};
  }
};

std::array<Half, 2> halves_of(const StepList& list, int root) {
  const std::array<Tree, 2> trees = grow_two(list.ranks, root);
  return {Half{trees[0], slice_of(list.count, 2, 0), list.parameter},
          Half{trees[1], slice_of(list.count, 2, 1), list.parameter}};
}

int num_rounds(const std::array<Half, 2>& halves) {
  const int deepest = std::max(halves[0].tree.deepest, halves[1].tree.deepest);
  return deepest + halves[0].segments - 1;
}

// In round t a rank of depth d receives segment t - d + 1 and passes on segment t - d.
void add_down(StepList& list, const std::array<Half, 2>& halves, int root, Place source) {
  for (int round = 0; round < num_rounds(halves); ++round) {
    for (int rank = 0; rank < list.ranks; ++rank) {
      std::vector<Message> group;
      for (const Half& half : halves) {
        const int depth = half.tree.depth[rank];
        const Range in = half.segment(round - depth + 1), out = half.segment(round - depth);
        const Place from = rank == root ? source : Place::kOutput;
        if (rank != root) {
          group.push_back(
              receive_from(half.tree.parent[rank], {rank, Place::kOutput, 0, in.begin}, in.size()));
        }
        for (const int child : half.tree.children[rank]) {
          group.push_back(send_to(child, {rank, from, 0, out.begin}, out.size()));
        }
      }
      add_messages(list, rank, group);
    }
  }
}

// Adds what the children sent to the own part: lower children to the left, others to the right.
void add_sum(StepList& list, int rank, const std::vector<Operand>& arrived, Range range,
             StepKind kind) {
  if (range.empty() || arrived.empty()) return;
  Step step;
  step.from = arrived;
  step.from.insert(step.from.begin() + (arrived.size() == 2 ? 1 : 0),
                   {rank, Place::kInput, 0, range.begin});
  step.to = {{rank, Place::kOutput, 0, range.begin}};
  step.count = range.size();
  step.tree =
      step.from.size() == 3 ? std::vector<int>{0, 1, -1, 2, -1} : std::vector<int>{0, 1, -1};
  step.kind = kind;
  list.per_rank[rank].push_back(std::move(step));
}

// Round t backwards: with D the depth of the deeper tree, a rank of depth d receives segment
// t - (D - d - 1), adds it, and sends it on in the round after.
void add_up(StepList& list, const std::array<Half, 2>& halves, int64_t room) {
  const int deepest = std::max(halves[0].tree.deepest, halves[1].tree.deepest);
  for (int round = 0; round < num_rounds(halves); ++round) {
    for (int rank = 0; rank < list.ranks; ++rank) {
      std::vector<Message> group;
      std::array<std::vector<Operand>, 2> arrived;
      std::array<Range, 2> sums;
      int64_t slot = 0;
      for (int which = 0; which < 2; ++which) {
        const auto& [tree, range, segments] = halves[which];
        const int height = deepest - tree.depth[rank];
        const Range in = halves[which].segment(round - height + 1);
        const Range out = halves[which].segment(round - height);
        const Place from = tree.children[rank].empty() ? Place::kInput : Place::kOutput;
        if (tree.parent[rank] >= 0) {
          group.push_back(send_to(tree.parent[rank], {rank, from, 0, out.begin}, out.size()));
        }
        for (const int child : tree.children[rank]) {
          arrived[which].push_back({rank, Place::kSlot, 0, slot});
          group.push_back(receive_from(child, arrived[which].back(), in.size()));
          slot += room;
        }
        sums[which] = in;
      }
      add_messages(list, rank, group);
      const StepKind kind = rank == 0 ? StepKind::kReduce : StepKind::kCombine;
      for (int which = 0; which < 2; ++which)
        add_sum(list, rank, arrived[which], sums[which], kind);
    }
  }
}

}  // namespace

StepList broadcast_double_tree(int ranks, int64_t count, int root, int segments) {
  require(segments >= 1, "broadcast_double_tree needs at least 1 segment");
  StepList list = open_broadcast("double_tree", ranks, count, root);
  list.parameter = segments;
  if (ranks > 1) add_down(list, halves_of(list, root), root, Place::kInput);
  add_copy(list, root, {root, Place::kInput}, {{root, Place::kOutput}}, count);
  return list;
}

StepList all_reduce_double_tree(int ranks, int64_t count, int segments) {
  require(segments >= 1, "all_reduce_double_tree needs at least 1 segment");
  StepList list = open_list(Routine::kAllReduce, "double_tree", ranks, count);
  list.keeps_order = ranks <= 2;
  list.parameter = segments;
  if (ranks == 1) {
    add_own_reduce(list);
    return list;
  }
  const std::array<Half, 2> halves = halves_of(list, 0);
  const int64_t room = halves[0].segment(0).size();
  list.slot_elements = 2 * room;  // nobody has more than two children in both trees together
  add_up(list, halves, room);
  add_down(list, halves, 0, Place::kOutput);
  return list;
}

}  // namespace hanji::schedule
