#include "hanji/report/internal/svg.h"

#include <gmock/gmock.h>

namespace hanji::report::internal {
namespace {

TEST(Svg, NumbersHaveADigitWhereTheyNeedItAndNoMinusZero) {
  EXPECT_EQ(svg_number(12), "12");
  EXPECT_EQ(svg_number(12.34), "12.3");
  EXPECT_EQ(svg_number(-0.04), "0");
  EXPECT_EQ(svg_number(-0.26), "-0.3");
}

TEST(Svg, BandOfColumnsGoesThereAndBack) {
  SvgPath path;
  path.band(10, 2, {5, 5, 3}, {8, 8, 8});
  EXPECT_EQ(path.element("data"), "<path class=\"data\" d=\"M10 5h4v-2h2V8h-6z\"/>\n");
}

TEST(Svg, PlacesOfABandDoNotDrift) {
  SvgPath path;
  std::vector<double> upper, lower(1000, 9.0);
  for (int i = 0; i < 1000; ++i) upper.push_back(i % 2);
  path.band(0, 0.64, upper, lower);
  EXPECT_THAT(path.element("data"), testing::HasSubstr("V9h-640z")) << "as far back as there";
}

TEST(Svg, RibbonWithoutWidthIsALine) {
  SvgPath path;
  path.ribbon({{0, 1, 1}, {10, 2, 2}});
  EXPECT_EQ(path.element("curve"), "<path class=\"curve\" d=\"M0 1L10 2\"/>\n");
  SvgPath wide;
  wide.ribbon({{0, 1, 3}, {10, 2, 2}});
  EXPECT_EQ(wide.element("curve"), "<path class=\"curve\" d=\"M0 1L10 2L10 2L0 3z\"/>\n");
}

TEST(Svg, AttributesAndTextsAreEscaped) {
  EXPECT_EQ(attribute("a \"b\" <c>"), "a &quot;b&quot; &lt;c&gt;");
  EXPECT_THAT(svg_text(1, 2, "label", Anchor::kEnd, "<&"),
              testing::HasSubstr("text-anchor=\"end\">&lt;&amp;</text>"));
}

TEST(Svg, RoundValuesAreOneTwoOrFiveTimesAPowerOfTen) {
  EXPECT_THAT(round_values(0, 36.3, 4), testing::ElementsAre(0, 10, 20, 30));
  EXPECT_THAT(round_values(1, 30, 8), testing::ElementsAre(5, 10, 15, 20, 25, 30));
  EXPECT_TRUE(round_values(1, 1, 4).empty());
}

}  // namespace
}  // namespace hanji::report::internal
