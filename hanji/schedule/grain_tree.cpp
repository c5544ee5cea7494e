#include "hanji/schedule/grain_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/internal/limits.h"
#include "hanji/schedule/internal/partials.h"
#include "hanji/schedule/pairwise_tree.h"

namespace hanji::schedule {
namespace {

using layout::Range;

int owner_of(const std::vector<Range>& owners, int64_t grain) {
  const auto after = std::upper_bound(owners.begin(), owners.end(), grain,
                                      [](int64_t g, const Range& range) { return g < range.end; });
  return static_cast<int>(after - owners.begin());
}

// A node inside one rank's grains is a partial of that rank; any other node is formed by the
// reduction. Recursion is as deep as the tree: log2 of the grains.
void visit(GrainTree& tree, Range node) {
  const int rank = owner_of(tree.owners, node.begin);
  if (node.end <= tree.owners[rank].end) {
    auto& partials = tree.ranks[rank].partials;
    tree.tree.push_back(static_cast<int>(tree.partials.size()));
    tree.partials.push_back({rank, static_cast<int>(partials.size())});
    partials.push_back(node);
    return;
  }
  const int64_t middle = node.begin + split_point(node.size());
  visit(tree, {node.begin, middle});
  visit(tree, {middle, node.end});
  tree.tree.push_back(-1);
}

// The binary counter of pairwise_tree(), on top of the partials that are already finished.
void fold_partial(Fold& fold, Range partial, int base) {
  int depth = 0;
  for (int64_t i = 0; i < partial.size(); ++i) {
    FoldStep step{partial.begin + i, base + depth, std::countr_one(static_cast<uint64_t>(i))};
    if (i + 1 == partial.size()) step.num_combines = depth;
    fold.num_buffers = std::max(fold.num_buffers, step.buffer + 1);
    depth += 1 - step.num_combines;
    fold.steps.push_back(step);
  }
}

}  // namespace

Status check_owners(int64_t num_grains, std::span<const Range> owners) {
  if (num_grains < 1 || num_grains > internal::kMaxGrains) {
    return base::invalid_argument(fmt::format("a grain tree over {} grains; it takes 1 to {}",
                                              num_grains, internal::kMaxGrains));
  }
  int64_t next = 0;
  for (size_t rank = 0; rank < owners.size(); ++rank) {
    const Range& range = owners[rank];
    if (range.begin != next || range.end < range.begin || range.end > num_grains) {
      return base::invalid_argument(fmt::format(
          "rank {} owns grains [{}, {}) where a range from {} within {} grains is due; ranges are "
          "contiguous in rank order",
          rank, range.begin, range.end, next, num_grains));
    }
    next = range.end;
  }
  if (next != num_grains) {
    return base::invalid_argument(
        fmt::format("the ranks own {} of {} grains; every grain needs an owner", next, num_grains));
  }
  return {};
}

GrainTree internal::partial_tree(int64_t num_grains, std::span<const Range> owners) {
  GrainTree tree;
  tree.num_grains = num_grains;
  tree.owners.assign(owners.begin(), owners.end());
  tree.ranks.resize(owners.size());
  visit(tree, {0, num_grains});
  return tree;
}

GrainTree grain_tree(int64_t num_grains, std::span<const Range> owners) {
  base::throw_if_error(check_owners(num_grains, owners));
  GrainTree tree = internal::partial_tree(num_grains, owners);
  for (Fold& fold : tree.ranks) {
    for (size_t i = 0; i < fold.partials.size(); ++i) {
      fold_partial(fold, fold.partials[i], static_cast<int>(i));
    }
  }
  return tree;
}

StepList tree_all_reduce(const GrainTree& tree, int64_t count) {
  const int ranks = static_cast<int>(tree.owners.size());
  StepList list = internal::open_list(Routine::kTreeReduce, "direct", ranks, count);
  list.owners = tree.owners;
  internal::add_sync(list);
  for (int rank = 0; rank < ranks; ++rank) {
    const Range slice = layout::shard_range(count, ranks, rank);
    Step reduce;
    for (const auto& partial : tree.partials) {
      reduce.from.push_back({partial.rank, Place::kInput, partial.part, slice.begin});
    }
    reduce.to = internal::of_all_ranks(ranks, Place::kOutput, slice.begin);
    reduce.count = slice.size();
    reduce.tree = tree.tree;
    internal::add_reduce(list, rank, std::move(reduce));
  }
  internal::add_sync(list);
  return list;
}

}  // namespace hanji::schedule
