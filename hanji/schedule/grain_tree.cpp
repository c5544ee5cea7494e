#include "hanji/schedule/grain_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

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

/// Adds grains up as they come.
class FoldMaker {
 public:
  explicit FoldMaker(std::vector<Range> partials) { fold_.partials = std::move(partials); }

  void add(int64_t grain) {
    FoldStep step{.grain = grain, .buffer = take_buffer()};
    std::vector<Range> path = path_to(grain);
    int buffer = step.buffer;
    for (; path.size() > 1; path.pop_back()) {
      const Range node = path.back(), parent = path[path.size() - 2];
      const bool is_left = node.begin == parent.begin;
      const auto sibling = complete_.find(is_left ? std::pair(node.end, parent.end)
                                                  : std::pair(parent.begin, node.begin));
      if (sibling == complete_.end()) break;
      const Combine both{std::min(buffer, sibling->second), std::max(buffer, sibling->second)};
      step.combines.push_back(both);
      buffer = both.into;
      is_taken_[both.from] = false;
      complete_.erase(sibling);
    }
    complete_[{path.back().begin, path.back().end}] = buffer;
    fold_.steps.push_back(std::move(step));
  }

  /// Partial i is then in buffer i.
  Fold finish() {
    fold_.num_buffers = static_cast<int>(is_taken_.size());
    std::vector<int> order;
    for (const Range& partial : fold_.partials) {
      order.push_back(complete_.at({partial.begin, partial.end}));
    }
    for (int b = 0; b < fold_.num_buffers; ++b) {
      if (std::ranges::find(order, b) == order.end()) order.push_back(b);
    }
    const auto renamed = [&](int buffer) {
      return static_cast<int>(std::ranges::find(order, buffer) - order.begin());
    };
    for (FoldStep& step : fold_.steps) {
      step.buffer = renamed(step.buffer);
      for (Combine& one : step.combines) one = {renamed(one.into), renamed(one.from)};
    }
    return std::move(fold_);
  }

 private:
  int take_buffer() {
    const auto free = std::ranges::find(is_taken_, false);
    const auto buffer = static_cast<int>(free - is_taken_.begin());
    free == is_taken_.end() ? is_taken_.push_back(true) : void(*free = true);
    return buffer;
  }

  /// From its partial down to the grain.
  std::vector<Range> path_to(int64_t grain) const {
    std::vector<Range> path = {*std::ranges::find_if(
        fold_.partials, [&](const Range& one) { return grain >= one.begin && grain < one.end; })};
    while (path.back().size() > 1) {
      const Range node = path.back();
      const int64_t middle = node.begin + split_point(node.size());
      path.push_back(grain < middle ? Range{node.begin, middle} : Range{middle, node.end});
    }
    return path;
  }

  Fold fold_;
  std::map<std::pair<int64_t, int64_t>, int> complete_;  ///< Nodes that wait for their sibling.
  std::vector<bool> is_taken_;
};

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

Fold fold_in_order(std::vector<Range> partials, std::span<const int64_t> grains) {
  std::vector<int64_t> wanted, given(grains.begin(), grains.end());
  for (const Range& one : partials) {
    for (int64_t grain = one.begin; grain < one.end; ++grain) wanted.push_back(grain);
  }
  std::ranges::sort(given);
  if (given != wanted) {
    throw Error(base::invalid_argument(fmt::format(
        "a fold of {} grains is given {}, not each of its own once; take the backwards of "
        "a checked list",
        wanted.size(), given.size())));
  }
  FoldMaker maker(std::move(partials));
  for (const int64_t grain : grains) maker.add(grain);
  return maker.finish();
}

GrainTree grain_tree(int64_t num_grains, std::span<const Range> owners) {
  base::throw_if_error(check_owners(num_grains, owners));
  GrainTree tree = internal::partial_tree(num_grains, owners);
  for (size_t rank = 0; rank < owners.size(); ++rank) {
    std::vector<int64_t> grains(owners[rank].size());
    std::iota(grains.begin(), grains.end(), owners[rank].begin);
    tree.ranks[rank] = fold_in_order(std::move(tree.ranks[rank].partials), grains);
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
