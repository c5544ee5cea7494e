#include "hanji/cost/rates.h"

#include <gmock/gmock.h>

namespace hanji::cost {
namespace {

using testing::HasSubstr;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST(Rates, GoThroughJsonUnchanged) {
  Rates rates;
  rates.memory_bytes_per_second = 1.0 / 3;
  rates.sync_seconds = 6.4e-7;
  rates.cache_bytes = 33554432;
  const auto read = rates_from_json(to_json(rates));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, rates);
}

TEST(Rates, CarryFittedCosts) {
  Rates rates;
  rates.fitted.emplace();
  rates.fitted->ranks = 2;
  rates.fitted->levels[3].update = 1.0 / 3e10;
  const auto read = rates_from_json(to_json(rates));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, rates);
  const std::string bad = replaced(to_json(rates), "\"ranks\":2", "\"ranks\":-2");
  EXPECT_THAT(rates_from_json(bad).status().message(), HasSubstr("ranks"));
}

TEST(Rates, RefuseWhatIsNoRate) {
  const std::string good = to_json(Rates{});
  for (const char* bad : {"0", "-1", "\"fast\"", "1e999", "null"}) {
    const std::string text = replaced(good, "1e-06", bad);
    EXPECT_EQ(rates_from_json(text).status().code(), Code::kCorrupt) << text;
  }
  EXPECT_EQ(rates_from_json(replaced(good, "8388608", "0.5")).status().code(), Code::kCorrupt);
  EXPECT_EQ(rates_from_json("[]").status().code(), Code::kCorrupt);
  EXPECT_EQ(rates_from_json("").status().code(), Code::kCorrupt);
}

TEST(Rates, OfOlderPlansHaveMembersThatAreIgnored) {
  const std::string older = "{\"compute_share\":0.9,\"gemm_flops_per_second_bf16\":5e10,";
  EXPECT_EQ(rates_from_json(replaced(to_json(Rates{}), "{", older)).or_throw(), Rates{});
}

TEST(Rates, RefuseMissingAndUnknownMembers) {
  const std::string good = to_json(Rates{});
  EXPECT_THAT(rates_from_json(replaced(good, "sync_seconds", "sink_seconds")).status().message(),
              HasSubstr("sync_seconds is missing"));
  EXPECT_THAT(rates_from_json(replaced(good, "{", "{\"more\":1,")).status().message(),
              HasSubstr("unknown"));
}

}  // namespace
}  // namespace hanji::cost
