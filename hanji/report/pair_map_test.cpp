#include "hanji/report/pair_map.h"

#include <gmock/gmock.h>

#include "hanji/base/status.h"

namespace hanji::report {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Cells are 640 / 2 pixels; (0, 1) is right of the diagonal, (1, 0) left of it.
TEST(PairMap, ShowsWhatWasFoundAboveTheDiagonalAndTheTruthBelow) {
  const std::string svg =
      pair_map_svg({.residues = 2, .found = {1, 1, 0, 1}, .truth = {1, 0, 0.5, 1}}, "a < b");
  EXPECT_THAT(svg, HasSubstr("x=\"360.00\" y=\"40.00\" width=\"320.00\" height=\"320.00\" "
                             "fill=\"#14346e\""));
  EXPECT_THAT(svg, HasSubstr("x=\"40.00\" y=\"360.00\" width=\"320.00\" height=\"320.00\" "
                             "fill=\"#8a9ab7\""));
  EXPECT_THAT(svg, Not(HasSubstr("x=\"40.00\" y=\"40.00\" width=\"320.00\""))) << "the diagonal";
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
}

TEST(PairMap, RefusesOtherNumbersOfValues) {
  EXPECT_THROW(pair_map_svg({.residues = 2, .found = {1}, .truth = {1, 1, 1, 1}}, ""), Error);
}

}  // namespace
}  // namespace hanji::report
