#include "hanji/schedule/pairwise_tree.h"

#include <gmock/gmock.h>

#include <string>

namespace hanji::schedule {
namespace {

std::string joined(const std::string& left, const std::string& right) {
  std::string text = "(";
  return text.append(left).append("+").append(right).append(")");
}

// The definition, written as it is spoken.
std::string spoken(int begin, int end) {
  if (end - begin == 1) return std::to_string(begin);
  int half = 1;
  while (2 * half < end - begin) half *= 2;
  return joined(spoken(begin, begin + half), spoken(begin + half, end));
}

std::string run(const std::vector<int>& tree) {
  std::vector<std::string> stack;
  for (const int value : tree) {
    if (value >= 0) {
      stack.push_back(std::to_string(value));
      continue;
    }
    const std::string right = stack.back();
    stack.pop_back();
    stack.back() = joined(stack.back(), right);
  }
  return stack.size() == 1 ? stack[0] : "not one value";
}

TEST(PairwiseTree, FollowsItsDefinition) {
  for (int n = 1; n <= 70; ++n) EXPECT_EQ(run(pairwise_tree(n)), spoken(0, n));
}

TEST(PairwiseTree, EightRanksSumAsTheTextbookSays) {
  EXPECT_EQ(run(pairwise_tree(8)), "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

TEST(PairwiseTree, TwoRanksAreOneCombine) {
  EXPECT_THAT(pairwise_tree(2), testing::ElementsAre(0, 1, -1));
  EXPECT_THAT(pairwise_tree(1), testing::ElementsAre(0));
}

TEST(SplitPoint, IsTheLargestPowerOfTwoBelow) {
  EXPECT_EQ(split_point(2), 1);
  EXPECT_EQ(split_point(3), 2);
  EXPECT_EQ(split_point(4), 2);
  EXPECT_EQ(split_point(5), 4);
  EXPECT_EQ(split_point((int64_t{1} << 40) + 1), int64_t{1} << 40);
}

}  // namespace
}  // namespace hanji::schedule
