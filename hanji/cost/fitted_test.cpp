#include "hanji/cost/fitted.h"

#include <gmock/gmock.h>

#include <numeric>

namespace hanji::cost {
namespace {

using testing::HasSubstr;

FittedCosts some_costs() {
  std::vector<double> values(kUnknowns);
  std::iota(values.begin(), values.end(), 1);
  FittedCosts costs;
  costs.ranks = 4;
  costs.processors = 2;
  costs.median_error = 0.03;
  set_unknowns(costs, values);
  costs.corrections = {
      {schedule::Routine::kAllReduce, "direct", DType::kFloat32, true, {{1024, 1.5}, {4096, 0.5}}},
      {schedule::Routine::kAllReduce, "direct", DType::kBFloat16, true, {{1024, 3}}},
      {schedule::Routine::kAllReduce, "flat", DType::kFloat32, true, {{1024, 2}}},
      {schedule::Routine::kAllReduce, "flat", DType::kFloat32, false, {{1024, 4}}}};
  return costs;
}

TEST(FittedCosts, UnknownsGoOutAndComeBack) {
  const FittedCosts costs = some_costs();
  EXPECT_EQ(costs.sync_seconds, 2);
  EXPECT_EQ(costs.levels[0].read, 5);
  EXPECT_EQ(costs.levels.back().combine.back(), static_cast<double>(kUnknowns));
  EXPECT_EQ(unknowns_of(costs).size(), kUnknowns);
  EXPECT_EQ(unknowns_of(costs)[kCommonUnknowns + kLevelUnknowns], costs.levels[1].read);
}

TEST(FittedCosts, JsonKeepsEveryMember) {
  const auto back = fitted_from_json(to_json(some_costs()));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(*back, some_costs());
}

TEST(FittedCosts, JsonIsReadStrictly) {
  const auto refusal = [](std::string from, std::string to) {
    std::string text = to_json(some_costs());
    text.replace(text.find(from), from.size(), to);
    return fitted_from_json(text).status().message();
  };
  EXPECT_THAT(refusal("\"sync_seconds\":2.0", "\"sync_seconds\":-2.0"), HasSubstr("sync_seconds"));
  EXPECT_THAT(refusal("\"sync_seconds\"", "\"sink_seconds\""),
              HasSubstr("sync_seconds is missing"));
  EXPECT_THAT(refusal("\"bytes\":65536", "\"bytes\":65537"), HasSubstr("another version"));
  EXPECT_THAT(refusal("{\"ranks\"", "{\"more\":1,\"ranks\""), HasSubstr("unknown members"));
  EXPECT_THAT(refusal("\"ranks\":4", "\"ranks\":0"), HasSubstr("ranks"));
  EXPECT_THAT(refusal("[1024,1.5]", "[8192,1.5]"), HasSubstr("out of order"));
  EXPECT_THAT(refusal("[1024,1.5]", "[1024,0.0]"), HasSubstr("not above 0"));
  EXPECT_THAT(refusal("\"all_reduce\"", "\"all_educe\""), HasSubstr("corrections"));
  EXPECT_THAT(fitted_from_json("[]").status().message(), HasSubstr("hanji bench --fit"));
}

TEST(Correction, IsInterpolatedAndTakenFromTheNearestType) {
  const FittedCosts costs = some_costs();
  const auto factor = [&](std::string_view algorithm, DType dtype, double bytes) {
    return correction_of(costs, schedule::Routine::kAllReduce, algorithm, dtype, bytes);
  };
  EXPECT_EQ(factor("direct", DType::kFloat32, 10), 1.5);
  EXPECT_EQ(factor("direct", DType::kFloat32, 2048), 1);
  EXPECT_EQ(factor("direct", DType::kFloat64, 1e9), 0.5);
  EXPECT_EQ(factor("direct", DType::kBFloat16, 2048), 3);
  EXPECT_EQ(factor("staged", DType::kFloat32, 2048), 1);
}

TEST(Correction, IsThatOfThePlacementWhereItWasTimed) {
  const FittedCosts costs = some_costs();
  const auto factor = [&](std::string_view algorithm, bool in_heap) {
    return correction_of(costs, schedule::Routine::kAllReduce, algorithm,
                         {4, DType::kFloat32, in_heap}, 1024);
  };
  EXPECT_EQ(factor("flat", true), 2);
  EXPECT_EQ(factor("flat", false), 4);
  EXPECT_EQ(factor("direct", false), 1.5);
}

TEST(FittedType, IsTheTypeOrOneOfItsSize) {
  EXPECT_EQ(kFittedTypes[fitted_type(DType::kFloat16)], DType::kFloat16);
  EXPECT_EQ(kFittedTypes[fitted_type(size_t{2})], DType::kBFloat16);
  EXPECT_EQ(kFittedTypes[fitted_type(DType::kInt64)], DType::kFloat64);
  EXPECT_EQ(kFittedTypes[fitted_type(DType::kInt32)], DType::kFloat32);
}

}  // namespace
}  // namespace hanji::cost
