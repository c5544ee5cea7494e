#include "hanji/plan/memory_bars.h"

#include <gmock/gmock.h>

namespace hanji::plan {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::vector<MemoryBar> kTwo = {
    {"ddp", {{"parameters", 28'000'000'000}, {"optimizer", 28'000'000'000}, {"slack", 0}}},
    {"zero1", {{"parameters", 28'000'000'000}, {"optimizer", 0}, {"slack", 0}}}};

TEST(BarsText, EveryCategoryHasItsShareOfTheScale) {
  EXPECT_EQ(bars_text(kTwo, 0),
            "ddp         PPPPPPPPPPPPPPPPPPPPPPPPPPPPOOOOOOOOOOOOOOOOOOOOOOOOOOOO    56.0 GB\n"
            "zero1       PPPPPPPPPPPPPPPPPPPPPPPPPPPP                                28.0 GB\n"
            "            P parameters  O optimizer\n");
}

TEST(BarsText, ALimitStandsWhereMemoryEnds) {
  const std::string text = bars_text(kTwo, 42'000'000'000);
  EXPECT_EQ(text.find('|'), 12u + 42);
  EXPECT_THAT(text, HasSubstr("| 42.0 GB"));
}

TEST(BarsText, WordsThatBeginAlikeGetOtherLetters) {
  EXPECT_THAT(bars_text({{"x", {{"slack", 1}, {"staging", 1}}}}, 0),
              HasSubstr("S slack  T staging"));
}

TEST(BarsSvg, DrawsWhatHasBytesAndEscapesWhatItIsGiven) {
  const std::string svg = bars_svg({{"a<b", {{"parameters", 5}, {"slack", 0}}}}, 10);
  EXPECT_THAT(svg, HasSubstr("a&lt;b"));
  EXPECT_THAT(svg, HasSubstr("width=\"280.00\" height=\"20\""));
  EXPECT_THAT(svg, Not(HasSubstr("slack")));
}

}  // namespace
}  // namespace hanji::plan
