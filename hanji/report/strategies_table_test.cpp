#include "hanji/report/strategies_table.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"
#include "hanji/base/text.h"

namespace hanji::report {
namespace {

using plan::Sharding;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr plan::ShardRanks kEight{.ranks = 8, .hybrid_ranks = 4};

TEST(StrategiesTable, HasALineForEachStrategyFromTheFormulasOfThePlan) {
  const std::string text = strategies_table(plan::kMixedAdam, kEight);
  for (const char* line : {"ddp +NO_SHARD +0 +whole +whole +whole +16 +3.5 +1\n",
                           "server +- +- +whole +whole +servers +4 +2 ",
                           "zero1 +- +1 +whole +whole +1/8 +5.5 +3.5 +1\n",
                           "zero2 +SHARD_GRAD_OP +2 +whole +1/8 +1/8 +3.75 +3.5 +1\n",
                           "zero3 +FULL_SHARD +3 +1/8 +1/8 +1/8 +2 +5.25 +1.5\n",
                           "hsdp +HYBRID_SHARD .* 1/4 +1/4 +1/4 +4 "}) {
    EXPECT_THAT(text, ContainsRegex(line));
  }
  EXPECT_THAT(text, HasSubstr("groups of 4 ranks"));
  for (const std::string_view line : base::split(text, '\n')) EXPECT_LE(line.size(), 80u) << line;
}

TEST(StrategiesTable, OneRankHasAllAndSendsNothing) {
  const std::string text = strategies_table(plan::kFloat32Adam, {});
  EXPECT_THAT(text, ContainsRegex("zero3 .* whole +whole +whole +16 +0\n"));
}

TEST(StrategiesTable, JsonHoldsTheSameBytes) {
  const auto json = base::parse_json(strategies_json(plan::kMixedAdam, kEight)).or_throw();
  ASSERT_EQ(json.size(), plan::kShardings.size());
  EXPECT_EQ(json[4]["data"], "zero3");
  EXPECT_EQ(json[4]["sent_bytes"], plan::sent_bytes(Sharding::kZero3, 1, plan::kMixedAdam, kEight));
}

}  // namespace
}  // namespace hanji::report
