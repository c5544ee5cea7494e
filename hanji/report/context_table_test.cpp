#include "hanji/report/context_table.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"

namespace hanji::report {
namespace {

using layout::ContextWay;
using testing::HasSubstr;

constexpr layout::ContextAttention kShared{
    .tokens = 256, .heads = 8, .kv_heads = 2, .width = 64, .ranks = 4};

/// 2 samples of 4 bytes an element: Ulysses turns 3 of 4 parts of 8 + 2 x 4 and 8 heads, a ring passes 2 x 2
/// heads three times.
TEST(ContextTable, HasTheBytesAndCallsOfBothWays) {
  const auto costs = plan::compare_context(kShared, 2, 4, {20e9, 60e9, 10e9, 1e-6, 32 << 20});
  const base::Json json = base::parse_json(context_json(kShared, 2, costs)).or_throw();
  const auto of = [&](std::string_view way) {
    for (const auto& one : json["ways"]) {
      if (one["way"] == way) return one;
    }
    return base::Json();
  };
  const int64_t token = 2 * 4 * 256 * 64;
  EXPECT_EQ(of("ulysses")["forward_bytes"], token * 24 * 3 / 4);
  EXPECT_EQ(of("ring")["forward_bytes"], token * 4 * 3);
  EXPECT_EQ(of("ring")["backward_bytes"], 2 * token * 4 * 3);
  EXPECT_EQ(of("ulysses")["forward_calls"], 2);
  EXPECT_EQ(of("ring")["backward_calls"], 6);
  const std::string text = context_table(kShared, 2, costs);
  EXPECT_THAT(text, HasSubstr("transfer: seconds of the calls"));
  EXPECT_THAT(text, HasSubstr("rank 0 has tokens 0-63; by rank, heads 2 2 2 2; each head of keys "
                              "and values 2 times"));
  EXPECT_THAT(text, HasSubstr("rank 0 has tokens 0-31 and 224-255, all heads"));
}

TEST(ContextTable, SaysWhyOneWayDoesNotServe) {
  layout::ContextAttention few = kShared;
  few.ranks = 16;
  const auto costs = plan::compare_context(few, 1, 4, {20e9, 60e9, 10e9, 1e-6, 32 << 20});
  EXPECT_THAT(context_table(few, 1, costs),
              HasSubstr("chosen: ring; ulysses needs a head for each rank"));
}

}  // namespace
}  // namespace hanji::report
