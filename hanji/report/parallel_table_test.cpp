#include "hanji/report/parallel_table.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/base/json.h"
#include "hanji/base/text.h"

namespace hanji::report {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

AxisMeaning meaning_of(std::string_view axis) {
  const auto all = axis_meanings();
  return *std::ranges::find(all, axis, &AxisMeaning::axis);
}

plan::CapacityQuery gpt2_on(int ranks) {
  plan::CapacityQuery query;
  query.device = plan::find_device("h100-80").or_throw();
  query.model =
      plan::find_model("gpt2", plan::facts_options(query.device, query.widths)).or_throw();
  query.ranks.ranks = ranks;
  query.global_batch = 32;
  return query;
}

const AxisPrice& price_of(const std::vector<AxisPrice>& prices, std::string_view axis) {
  return *std::ranges::find(prices, axis, &AxisPrice::axis);
}

TEST(ParallelTable, AxesMeanWhatTheMeshDoes) {
  EXPECT_FALSE(meaning_of("dp").same_samples);
  EXPECT_TRUE(meaning_of("dp").sums_gradients);
  EXPECT_THAT(meaning_of("dp").families, IsEmpty());
  EXPECT_TRUE(meaning_of("cp").same_samples);
  EXPECT_TRUE(meaning_of("cp").sums_gradients);
  EXPECT_TRUE(meaning_of("tp").same_samples);
  EXPECT_FALSE(meaning_of("tp").sums_gradients) << "each rank has other parameters";
  EXPECT_FALSE(meaning_of("pp").sums_gradients);
  EXPECT_THAT(meaning_of("axial").families, Contains("evoformer"));
  EXPECT_THAT(meaning_of("tp").families, Contains("gpt"));
}

TEST(ParallelTable, EachAxisMovesItsOwnKind) {
  const auto prices = price_axes(gpt2_on(4)).or_throw();
  const auto best = [&](std::string_view axis) { return price_of(prices, axis).choices.at(0); };
  EXPECT_GT(best("dp").data_bytes, 0);
  EXPECT_EQ(best("dp").layer_bytes, 0);
  EXPECT_GT(best("tp").layer_bytes, 0);
  EXPECT_EQ(best("tp").data_bytes, 0);
  EXPECT_GT(best("pp").stage_bytes, 0);
  EXPECT_GT(best("pp").bubble, 0);
  EXPECT_GT(best("cp").layer_bytes, 0);
  EXPECT_GT(best("cp").data_bytes, 0) << "gradients are summed over cp too";
}

TEST(ParallelTable, WhatDoesNotServeSaysWhyAndLinesFit) {
  const plan::CapacityQuery query = gpt2_on(16);  // 12 heads
  const auto prices = price_axes(query).or_throw();
  EXPECT_THAT(price_of(prices, "tp").choices, IsEmpty());
  EXPECT_NE(price_of(prices, "tp").refused, "");
  const std::string text = parallel_table(query, prices);
  EXPECT_THAT(text, HasSubstr("parallel.sequence"));
  EXPECT_THAT(text, HasSubstr("a rank sends 27.5 MB"));
  for (const std::string_view line : base::split(text, '\n')) EXPECT_LE(line.size(), 80u) << line;
  const auto json = base::parse_json(parallel_json(prices)).or_throw();
  EXPECT_EQ(json["axes"].size(), 6u);
}

}  // namespace
}  // namespace hanji::report
