#include "hanji/cli/timing_notice.h"

#include <gtest/gtest.h>

namespace hanji::cli {
namespace {

TEST(TimingNotice, SaysHowLongAndHowMuchIsDone) {
  EXPECT_EQ(timing_text(0, 3.2), "timing operations of this machine, once: ~4 s, 0 % done");
  EXPECT_EQ(timing_text(1.6, 3.2), "timing operations of this machine, once: ~4 s, 50 % done");
  EXPECT_EQ(timing_text(9, 0.2), "timing operations of this machine, once: ~1 s, 100 % done");
}

}  // namespace
}  // namespace hanji::cli
