#include "hanji/layout/unit.h"

#include <gmock/gmock.h>

namespace hanji::layout {
namespace {

using testing::ElementsAre;

std::vector<int> first_indices(size_t count) {
  std::vector<int> indices;
  for (size_t i = 0; i < count; ++i) indices.push_back(static_cast<int>(i));
  return indices;
}

TEST(MakeUnit, KeepsItsOrderAndStartsEachParameterAt64) {
  const std::vector<int64_t> sizes = {100, 7, 64, 3000};
  const Unit unit = make_unit({3, 1}, sizes, 2);
  EXPECT_THAT(unit.parameters, ElementsAre(3, 1));
  EXPECT_THAT(unit.flat.offsets, ElementsAre(0, 3008));
  EXPECT_EQ(unit.flat.count, 3072);
  // The ideal end is 1536; a block begins at 1024 and at 2048, equally far: the lower one.
  EXPECT_THAT(unit.shards, ElementsAre(Range{0, 1024}, Range{1024, 3072}));
  EXPECT_THAT(shard_counts(unit), ElementsAre(1024, 2048));
}

TEST(CutShards, EndsAtBlocksAndIsEvenButForOne) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < 40; ++i) sizes.push_back(i * 977 % 5003);
  const FlatLayout flat = flat_layout(sizes);
  for (const int ranks : {1, 2, 3, 4, 7, 16}) {
    int64_t next = 0;
    for (const Range& shard : cut_shards(flat, ranks)) {
      EXPECT_EQ(shard.begin, next);
      EXPECT_LE(std::abs(shard.size() - flat.count / ranks), kShardBlock + 1);
      next = shard.end;
    }
    EXPECT_EQ(next, flat.count);
  }
}

TEST(CutShards, AParameterOfOneBlockHasOneOwner) {
  const FlatLayout flat = flat_layout(std::vector<int64_t>{37});
  EXPECT_THAT(cut_shards(flat, 3), ElementsAre(Range{0, 0}, Range{0, 64}, Range{64, 64}));
  EXPECT_THAT(cut_shards(flat_layout({}), 2), ElementsAre(Range{0, 0}, Range{0, 0}));
}

TEST(Pieces, OfAllRanksCoverEveryParameterOnceInWholeBlocks) {
  const std::vector<int64_t> sizes = {5000, 1, 0, 1023, 1025, 4096, 77, 10000};
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const Unit unit = make_unit(first_indices(sizes.size()), sizes, ranks);
    std::vector<int64_t> covered(sizes.size());
    for (int rank = 0; rank < ranks; ++rank) {
      for (const Piece& piece : pieces(unit, rank)) {
        EXPECT_EQ(piece.elements.begin, covered[piece.position]);
        EXPECT_EQ(piece.elements.begin % kShardBlock, 0);
        EXPECT_EQ(piece.flat, unit.flat.offsets[piece.position] + piece.elements.begin);
        EXPECT_EQ(piece.flat % kAlignment, 0);
        covered[piece.position] = piece.elements.end;
      }
    }
    EXPECT_EQ(covered, sizes);
  }
}

TEST(GroupBySize, ClosesAGroupOnceItHoldsEnough) {
  EXPECT_THAT(group_by_size(std::vector<int64_t>{10, 20, 100, 5, 5}, 30),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3, 4)));
  EXPECT_TRUE(group_by_size({}, 30).empty());
}

}  // namespace
}  // namespace hanji::layout
