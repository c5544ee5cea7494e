#include "hanji/schedule/grain_tree.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "hanji/schedule/check.h"
#include "hanji/schedule/internal/test_lists.h"

namespace hanji::schedule {
namespace {

using internal::tree_sum;
using layout::Range;
using testing::ElementsAre;
using testing::HasSubstr;

// Calls visit(owners) for every way to cut `grains` into `ranks` ranges, empty ones included.
void for_each_split(int64_t grains, int ranks, std::vector<Range>& owners,
                    const std::function<void(const std::vector<Range>&)>& visit) {
  const int64_t begin = owners.empty() ? 0 : owners.back().end;
  for (int64_t end = ranks == 1 ? grains : begin; end <= grains; ++end) {
    owners.push_back({begin, end});
    ranks == 1 ? visit(owners) : for_each_split(grains, ranks - 1, owners, visit);
    owners.pop_back();
  }
}

// Does what the fold says with one float per grain; checks that no buffer is written over.
std::vector<float> fold(const Fold& plan, const std::vector<float>& gradients) {
  std::vector<float> buffers(plan.num_buffers);
  std::vector<bool> is_full(plan.num_buffers);
  for (const FoldStep& step : plan.steps) {
    EXPECT_FALSE(is_full[step.buffer]);
    buffers[step.buffer] = gradients[step.grain];
    is_full[step.buffer] = true;
    for (const auto& [into, from] : step.combines) {
      EXPECT_TRUE(is_full[into] && is_full[from]);
      buffers[into] += buffers[from];
      is_full[from] = false;
    }
  }
  for (int b = 0; b < plan.num_buffers; ++b) EXPECT_EQ(is_full[b], b < std::ssize(plan.partials));
  buffers.resize(plan.partials.size());
  return buffers;
}

float run(const GrainTree& tree, const std::vector<float>& gradients) {
  std::vector<float> partials, stack;
  for (const Fold& plan : tree.ranks) {
    for (const float value : fold(plan, gradients)) partials.push_back(value);
  }
  for (const int value : tree.tree) {
    if (value >= 0) {
      stack.push_back(partials[value]);
      continue;
    }
    const float right = stack.back();
    stack.pop_back();
    stack.back() += right;
  }
  return stack[0];
}

// Sums of these depend on the order in nearly every bit.
std::vector<float> rough(int64_t n) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>((i * 2654435761u) % 1000003) * (i % 3 ? 1e-3f : -7.1f));
  }
  return values;
}

void expect_same_bits_and_few_buffers(int64_t grains, const std::vector<Range>& owners) {
  const std::vector<float> gradients = rough(grains);
  const GrainTree tree = grain_tree(grains, owners);
  ASSERT_EQ(run(tree, gradients), tree_sum(gradients, 0, gradients.size()));
  const int log2 = std::bit_width(static_cast<uint64_t>(grains - 1));  // rounded up
  for (const Fold& plan : tree.ranks) {
    EXPECT_LE(static_cast<int>(plan.partials.size()), std::max(1, 2 * log2));
    EXPECT_LE(plan.num_buffers, std::max(1, 2 * log2) + 1);
  }
}

TEST(GrainTree, GivesTheSameBitsForEverySplit) {
  for (int64_t grains = 1; grains <= 24; ++grains) {
    for (const int ranks : {1, 2, 3}) {
      std::vector<Range> owners;
      for_each_split(grains, ranks, owners, [&](const std::vector<Range>& split) {
        expect_same_bits_and_few_buffers(grains, split);
      });
    }
  }
}

TEST(GrainTree, GivesTheSameBitsForManyGrains) {
  for (const int64_t grains : {100, 127, 128, 1000, 4097}) {
    for (const int64_t cut : {int64_t{1}, grains / 3, grains / 2 + 1, grains - 1}) {
      expect_same_bits_and_few_buffers(grains, {{0, cut}, {cut, grains}});
      expect_same_bits_and_few_buffers(grains, {{0, cut / 2}, {cut / 2, cut}, {cut, grains}});
    }
  }
}

TEST(GrainTree, TheUnevenSplitOfAHundredIsWorkedOut) {
  const std::vector<Range> owners = {{0, 25}, {25, 50}, {50, 60}, {60, 100}};
  const GrainTree tree = grain_tree(100, owners);
  EXPECT_THAT(tree.ranks[0].partials, ElementsAre(Range{0, 16}, Range{16, 24}, Range{24, 25}));
  EXPECT_THAT(tree.ranks[2].partials, ElementsAre(Range{50, 52}, Range{52, 56}, Range{56, 60}));
  EXPECT_THAT(tree.ranks[3].partials, ElementsAre(Range{60, 64}, Range{64, 100}));
}

TEST(GrainTree, AFoldIsAStackThatEndsWithThePartials) {
  const std::vector<Range> owners = {{0, 5}, {5, 8}};
  const GrainTree tree = grain_tree(8, owners);
  // Rank 0: (0..3) in buffer 0, grain 4 alone in buffer 1.
  EXPECT_THAT(tree.ranks[0].steps,
              ElementsAre(FoldStep{0, 0}, FoldStep{1, 1, {{0, 1}}}, FoldStep{2, 1},
                          FoldStep{3, 2, {{1, 2}, {0, 1}}}, FoldStep{4, 1}));
  EXPECT_EQ(tree.ranks[0].num_buffers, 3);
  EXPECT_THAT(tree.tree, ElementsAre(0, 1, 2, -1, 3, -1, -1));
}

TEST(GrainTree, GivesTheSameBitsInEveryOrderOfGrains) {
  for (int64_t grains = 1; grains <= 7; ++grains) {
    const std::vector<float> gradients = rough(grains);
    std::vector<Range> owners;
    for_each_split(grains, 2, owners, [&](const std::vector<Range>& split) {
      GrainTree tree = grain_tree(grains, split);
      const std::vector<Range> partials = tree.ranks[1].partials;
      std::vector<int64_t> order(split[1].size());
      std::iota(order.begin(), order.end(), split[1].begin);
      do {
        tree.ranks[1] = fold_in_order(partials, order);
        ASSERT_EQ(run(tree, gradients), tree_sum(gradients, 0, gradients.size()));
      } while (std::ranges::next_permutation(order).found);
    });
  }
}

TEST(GrainTree, TakesFewBuffersForGrainsFromTheLastToTheFirst) {
  for (const int64_t grains : {5, 8, 37, 100}) {
    std::vector<int64_t> order(grains);
    std::iota(order.rbegin(), order.rend(), 0);
    const Fold backwards = fold_in_order({{0, grains}}, order);
    EXPECT_LE(backwards.num_buffers, std::bit_width(static_cast<uint64_t>(grains - 1)) + 1);
  }
}

// Else no test of an order could tell a fold from an accumulation.
TEST(GrainTree, AddingGrainsAsTheyComeHasOtherBits) {
  const std::vector<float> gradients = rough(37);
  float sum = 0;
  for (int grain = 36; grain >= 0; --grain) sum += gradients[grain];
  EXPECT_NE(sum, tree_sum(gradients, 0, gradients.size()));
}

TEST(GrainTree, RefusesAnOrderOfOtherGrains) {
  const auto fold = [](std::vector<int64_t> grains) {
    return [grains] { fold_in_order({{2, 4}}, grains); };
  };
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{2}, {2, 2}, {3, 4}, {2, 3, 3}}) {
    EXPECT_THROW(fold(wrong)(), Error);
  }
}

TEST(GrainTree, OwningEverythingIsOnePartial) {
  const std::vector<Range> owners = {{0, 37}};
  const GrainTree tree = grain_tree(37, owners);
  EXPECT_THAT(tree.ranks[0].partials, ElementsAre(Range{0, 37}));
  EXPECT_THAT(tree.tree, ElementsAre(0));
}

TEST(GrainTree, RefusesOwnersThatAreNoSplit) {
  const auto refusal = [](int64_t grains, std::vector<Range> owners) {
    return check_owners(grains, owners).message();
  };
  EXPECT_THAT(refusal(4, {{0, 2}, {3, 4}}), HasSubstr("rank 1 owns grains [3, 4)"));
  EXPECT_THAT(refusal(4, {{0, 3}, {2, 4}}), HasSubstr("rank 1"));
  EXPECT_THAT(refusal(4, {{0, 5}}), HasSubstr("rank 0"));
  EXPECT_THAT(refusal(4, {{0, 2}, {2, 1}}), HasSubstr("rank 1"));
  EXPECT_THAT(refusal(4, {{0, 2}}), HasSubstr("2 of 4"));
  EXPECT_THAT(refusal(0, {{0, 0}}), HasSubstr("0 grains"));
  EXPECT_THAT(refusal(4, {}), HasSubstr("0 of 4"));
  const std::vector<Range> gap = {{0, 1}};
  EXPECT_THROW(grain_tree(2, gap), Error);
}

TEST(TreeAllReduce, IsProvedForEverySplit) {
  for (const int64_t grains : {1, 2, 7, 13}) {
    std::vector<Range> owners;
    for_each_split(grains, 3, owners, [&](const std::vector<Range>& split) {
      EXPECT_EQ(check(tree_all_reduce(grain_tree(grains, split), 200)).message(), "");
    });
  }
}

TEST(TreeAllReduce, MovesOnlyPartialsOverTheWire) {
  const std::vector<Range> owners = {{0, 4}, {4, 8}};
  const StepList list = tree_all_reduce(grain_tree(8, owners), 128);
  EXPECT_EQ(wire_bytes(list, 4), 2 * 64 * 4);  // as an all_reduce: one partial per rank
}

}  // namespace
}  // namespace hanji::schedule
