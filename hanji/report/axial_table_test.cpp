#include "hanji/report/axial_table.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"
#include "hanji/base/text.h"

namespace hanji::report {
namespace {

using layout::AxialBlock;
using layout::TriangleWay;
using testing::HasSubstr;

base::Json json_of(const AxialBlock& block, int64_t element_bytes = 2) {
  return base::parse_json(axial_json(block, element_bytes)).or_throw();
}

/// q [(2 s N c_m + 8 N^2 c_z) / p + 16 N^2 + 32 s N] elements of a rank, q = (p - 1) / p: the table of the
/// literature has 44, 35, 22 and 14 MB of 2 bytes for p = 2, 4, 8 and 16.
TEST(AxialTable, HasThePublishedBytes) {
  for (const auto& [ranks, megabytes] : {std::pair(2, 44), {4, 35}, {8, 22}, {16, 14}}) {
    const int64_t sent = json_of({.ranks = ranks})["forward_bytes"].get<int64_t>();
    EXPECT_NEAR(static_cast<double>(sent) / ranks / 1e6, megabytes, 0.5) << ranks;
  }
}

TEST(AxialTable, NothingMovesOnOneRankAndOnlyChannelsDivide) {
  EXPECT_EQ(json_of({.ranks = 1})["forward_bytes"], 0);
  EXPECT_EQ(json_of({.ranks = 1})["backward_bytes"], 0);
  const auto memory = [](TriangleWay way, int ranks) {
    return json_of({.ranks = ranks, .triangle = way})["triangle_bytes_per_rank"].get<int64_t>();
  };
  EXPECT_EQ(memory(TriangleWay::kGather, 2), memory(TriangleWay::kGather, 8));
  EXPECT_EQ(memory(TriangleWay::kRing, 2), 4 * memory(TriangleWay::kRing, 8));
  EXPECT_EQ(memory(TriangleWay::kChannels, 2), 4 * memory(TriangleWay::kChannels, 8));
}

TEST(AxialTable, NamesLayoutsCollectivesAndOtherWays) {
  const std::string text = axial_table({.ranks = 4}, 4, 160);
  EXPECT_THAT(text, HasSubstr("a block of 256 residues and 128 sequences on 4 ranks"));
  EXPECT_THAT(text, HasSubstr("sequences -> residues"));
  EXPECT_THAT(text, HasSubstr("bias of pairs: all_gather"));
  EXPECT_THAT(text, HasSubstr("operands: channels"));
  EXPECT_THAT(text, HasSubstr("gather 101 MB, ring 101 MB"));
  EXPECT_THAT(axial_table({.sequences = 0, .ranks = 2, .has_attention = false}, 4),
              testing::Not(HasSubstr("attention")));
}

TEST(AxialTable, MaskIsWholeAndRowsLieOneBehindTheOther) {
  const AxialBlock block{.residues = 13, .sequences = 5, .ranks = 3, .padded = 6};
  const base::Json json = json_of(block, 4);
  EXPECT_EQ(json["mask_bytes_per_rank"], 4 * (13 * 13 + 5 * 13));
  int64_t end = 0, padded = 0;
  for (const base::Json& rank : json["rows"]) {
    EXPECT_EQ(rank["rows"][0], end) << "no row is left out or held twice";
    end = rank["rows"][1];
    padded += rank["padded_rows"].get<int64_t>();
  }
  EXPECT_EQ(end, 13);
  EXPECT_EQ(padded, 6);
  EXPECT_EQ(json["rows"][1]["padded_rows"], 2) << "rows 5 to 8, of which 7 and 8 are none";
  const std::string text = axial_rows_table(block, 4);
  EXPECT_THAT(text, HasSubstr("0-4, 5 of them"));
  EXPECT_THAT(text, HasSubstr("13 x 13 and 5 x 13, whole"));
  EXPECT_THAT(text, HasSubstr("the first ranks have one more"));
  for (const std::string_view line : base::split(text, '\n')) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(axial_svg(block, 4), HasSubstr("whole on every rank"));
}

TEST(AxialTable, OfManyRanksTheFirstAndTheLastAreListed) {
  const std::string text = axial_rows_table({.ranks = 64}, 4);
  EXPECT_THAT(text, HasSubstr("252-255, 4 of them"));
  EXPECT_THAT(text, testing::Not(HasSubstr("60-63, 4 of them")));
}

TEST(AxialTable, DrawsAPartOfEachRankBeforeAndAfter) {
  const std::string svg = axial_svg({.sequences = 0, .ranks = 2, .has_attention = false}, 4);
  size_t parts = 0;
  for (size_t at = svg.find("fill=\"#2f5c9e\""); at != svg.npos; ++parts) {
    at = svg.find("fill=\"#2f5c9e\"", at + 1);
  }
  EXPECT_EQ(parts, 2 * 3u) << "two products and a transition";
}

}  // namespace
}  // namespace hanji::report
