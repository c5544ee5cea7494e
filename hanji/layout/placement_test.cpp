#include "hanji/layout/placement.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace hanji::layout {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Placement, PartsCoverTheWholeInOrder) {
  for (const int64_t size : {0, 1, 6, 65, 384}) {
    for (const int degree : {1, 2, 3, 4, 7}) {
      int64_t end = 0;
      for (int index = 0; index < degree; ++index) {
        const Range part = part_of(size, 1, index, degree);
        EXPECT_EQ(part.begin, end);
        EXPECT_LE(part.size(), size / degree + 1);
        end = part.end;
      }
      EXPECT_EQ(end, size);
    }
  }
}

TEST(Placement, CutsFallOnUnitsAndTheLastTakesTheRest) {
  EXPECT_EQ(part_of(100, 16, 0, 2), (Range{0, 48}));
  EXPECT_EQ(part_of(100, 16, 1, 2), (Range{48, 100}));
}

TEST(Placement, RanksHaveWholeBlocksWhoseBoundariesNoDegreeMoves) {
  // Six heads in four blocks: 1, 2, 1, 2.
  const Placement heads{1, {24}, 4, 4};
  EXPECT_THAT(*parts_of(heads, 24, 0, 2), ElementsAre(Range{0, 12}));
  EXPECT_THAT(*parts_of(heads, 24, 0, 3), ElementsAre(Range{0, 12}));
  EXPECT_THAT(*parts_of(heads, 24, 1, 3), ElementsAre(Range{12, 16}));
  EXPECT_THAT(*parts_of(heads, 24, 2, 3), ElementsAre(Range{16, 24}));
  EXPECT_THAT(*parts_of(heads, 24, 3, 4), ElementsAre(Range{16, 24}));
  EXPECT_EQ(part_of(65, 16, 1, 2, 4), (Range{32, 65}));
}

TEST(Placement, TheFirstRanksOwnTheBlocksThatAreLeftOver) {
  EXPECT_THAT(block_owners(4, 3), ElementsAre(Range{0, 2}, Range{2, 3}, Range{3, 4}));
  for (const int blocks : {2, 3, 5, 8}) {
    for (int degree = 1; degree <= blocks; ++degree) {
      int64_t most = 0;
      for (int index = 0; index < degree; ++index) {
        most = std::max(most, part_of(120, 1, index, degree, blocks).size());
      }
      EXPECT_EQ(part_of(120, 1, largest_part(degree, blocks), degree, blocks).size(), most);
    }
  }
}

TEST(Placement, FewerBlocksThanRanksAndFewerUnitsThanBlocksAreRefused) {
  EXPECT_THAT(parts_of({1, {24}, 4, 4}, 24, 0, 5).status().message(),
              AllOf(HasSubstr("5 ranks share 4 blocks"), HasSubstr("at most 4")));
  EXPECT_THAT(parts_of({1, {24}, 4, 8}, 24, 0, 1).status().message(),
              AllOf(HasSubstr("8 blocks share 6 units"), HasSubstr("at most 6")));
}

TEST(Placement, EachSegmentIsCutByItself) {
  const Placement qkv{0, {6, 6, 6}, 2};
  EXPECT_THAT(*parts_of(qkv, 18, 1, 3), ElementsAre(Range{2, 4}, Range{8, 10}, Range{14, 16}));
}

TEST(Placement, ALongerSegmentIsCutWhereTheShortestIs) {
  const Placement grouped{0, {12, 4, 4}, 2};  // three heads of queries to one of keys and values
  EXPECT_THAT(*parts_of(grouped, 20, 1, 2),
              ElementsAre(Range{6, 12}, Range{14, 16}, Range{18, 20}));
  EXPECT_THAT(parts_of(grouped, 20, 0, 3).status().message(),
              AllOf(HasSubstr("3 ranks share 2 units"), HasSubstr("at most 2")));
}

TEST(Placement, SegmentsOfAnotherSizeAreRefused) {
  EXPECT_THAT(parts_of({0, {6, 6}}, 18, 0, 2).status().message(),
              AllOf(HasSubstr("[6, 6]"), HasSubstr("18")));
}

TEST(Placement, MoreRanksThanUnitsAreRefusedWithTheMostThereMayBe) {
  EXPECT_THAT(parts_of({0, {}, 64}, 384, 0, 7).status().message(),
              AllOf(HasSubstr("7 ranks share 6 units of 64"), HasSubstr("at most 6")));
}

TEST(Placement, TheFirstPatternThatFitsIsTaken) {
  const PlacementTable table{{"*.c_attn.weight", {0, {4, 4, 4}}}, {"*.weight", {1}}, {"*", {}}};
  EXPECT_EQ(placement_of(table, "h.0.attn.c_attn.weight")->segments.size(), 3U);
  EXPECT_EQ(placement_of(table, "h.0.mlp.c_proj.weight")->dim, 1);
  EXPECT_FALSE(placement_of(table, "ln_f.bias")->is_cut());
}

TEST(Placement, StarsStandForAnyRunAlsoForNone) {
  const PlacementTable table{{"a*b*c", {3}}};
  for (const char* name : {"abc", "axbxc", "abbc", "abcbc"}) {
    EXPECT_TRUE(placement_of(table, name).ok()) << name;
  }
  for (const char* name : {"ab", "abcd", "xabc"}) {
    EXPECT_FALSE(placement_of(table, name).ok()) << name;
  }
}

TEST(Placement, AParameterThatNoPatternFitsIsNamed) {
  EXPECT_THAT(placement_of({{"*.weight", {0}}}, "ln.bias").status().message(),
              AllOf(HasSubstr("ln.bias"), HasSubstr("\"*.weight\"")));
}

}  // namespace
}  // namespace hanji::layout
