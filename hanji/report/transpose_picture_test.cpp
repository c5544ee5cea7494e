#include "hanji/report/transpose_picture.h"

#include <gmock/gmock.h>

namespace hanji::report {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(TransposePicture, BytesAreThoseOfBlocksThatChangeTheirRank) {
  const TransposeShape shape{
      .ranks = 4, .rows = 8, .columns = 12, .channels = 10, .element_bytes = 2};
  const TransposeBytes bytes = transpose_bytes(shape);
  EXPECT_EQ(bytes.tensor, 8 * 12 * 20);
  EXPECT_EQ(bytes.before, 2 * 12 * 20);
  EXPECT_EQ(bytes.after, 8 * 3 * 20);
  EXPECT_EQ(bytes.sent, 2 * 9 * 20) << "three of its four blocks";
  EXPECT_EQ(bytes.gathered, 4 * bytes.sent * 3 / 4 + 6 * 3 * 20) << "all rows of the others";
}

TEST(TransposePicture, UnevenPartsCountAsTheRankThatHasMost) {
  const TransposeBytes bytes =
      transpose_bytes({.ranks = 3, .rows = 4, .columns = 7, .channels = 1, .element_bytes = 1});
  EXPECT_EQ(bytes.before, 14) << "2 rows";
  EXPECT_EQ(bytes.after, 12) << "3 columns";
  EXPECT_EQ(bytes.sent, 8) << "2 rows of the 4 other columns";
  EXPECT_EQ(bytes.gathered, 21) << "3 rows, by a rank of one";
  const TransposeBytes alone = transpose_bytes({.ranks = 1});
  EXPECT_EQ(alone.sent, 0);
  EXPECT_EQ(alone.gathered, 0);
}

TEST(TransposePicture, DrawsRowsThatBecomeColumns) {
  EXPECT_EQ(transpose_text({.ranks = 2}),
            "before: a rank has rows      after: a rank has columns\n"
            "[0][0]                       [0][1]\n"
            "[1][1]                   ->  [0][1]\n"
            "[r]: a block of rows and columns, which rank r has\n");
  EXPECT_THAT(transpose_text({.ranks = 9}), HasSubstr("(8 of 9 ranks)"));
  EXPECT_THAT(transpose_text({.ranks = 8}), Not(HasSubstr("8 ranks")));
  EXPECT_THAT(transpose_svg({.ranks = 3}), AllOf(HasSubstr("<svg"), HasSubstr(">2</text>")));
}

TEST(TransposePicture, JsonHasTheRangesOfEveryRank) {
  const base::Json json = transpose_json({.ranks = 3, .rows = 4, .columns = 7});
  EXPECT_EQ(json["ranks"].size(), 3U);
  EXPECT_EQ(json["ranks"][0]["rows_before"], base::Json({0, 2}));
  EXPECT_EQ(json["ranks"][2]["columns_after"], base::Json({5, 7}));
}

}  // namespace
}  // namespace hanji::report
