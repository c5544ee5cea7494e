#include "hanji/layout/flat.h"

#include <gmock/gmock.h>

namespace hanji::layout {
namespace {

using testing::ElementsAre;

TEST(FlatLayout, EveryParameterStartsAtAMultipleOf64) {
  const std::vector<int64_t> sizes = {1, 64, 65, 0, 3};
  const FlatLayout flat = flat_layout(sizes);
  EXPECT_THAT(flat.offsets, ElementsAre(0, 64, 128, 256, 256));
  EXPECT_THAT(flat.sizes, ElementsAre(1, 64, 65, 0, 3));
  EXPECT_EQ(flat.count, 320);
}

TEST(FlatLayout, AlignmentOfOnePacks) {
  const std::vector<int64_t> sizes = {3, 5};
  EXPECT_THAT(flat_layout(sizes, 1).offsets, ElementsAre(0, 3));
  EXPECT_EQ(flat_layout(sizes, 1).count, 8);
}

TEST(FlatLayout, NothingTakesNothing) { EXPECT_EQ(flat_layout({}).count, 0); }

}  // namespace
}  // namespace hanji::layout
