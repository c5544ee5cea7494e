#include "hanji/plan/model_spec.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hanji::plan {
namespace {

TEST(ModelSpec, Gpt2HasItsPublishedNumberOfParameters) {
  ModelSpec gpt2 = preset("gpt2").or_throw();
  gpt2.vocabulary = 50257;
  EXPECT_EQ(gpt2.num_parameters(), 124439808);
  gpt2.tied = false;
  EXPECT_EQ(gpt2.num_parameters(), 124439808 + 50257 * 768);
}

TEST(ModelSpec, NanoByHand) {
  ModelSpec nano = preset("nano").or_throw();
  nano.vocabulary = 65;
  // 65*32 + 32*32 + 2*(12*32*32 + 13*32) + 2*32
  EXPECT_EQ(nano.num_parameters(), 2080 + 1024 + 2 * (12288 + 416) + 64);
}

TEST(ModelSpec, SizesOfTheTensorsAddUpToTheCount) {
  for (const std::string_view which : {"nano", "char", "baby", "gpt2"}) {
    for (bool tied : {true, false}) {
      ModelSpec model = preset(which).or_throw();
      model.tied = tied;
      const auto sizes = model.parameter_sizes();
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), model.num_parameters());
      EXPECT_EQ(static_cast<int64_t>(sizes.size()), 2 + 12 * model.layers + 2 + (tied ? 0 : 1));
    }
  }
}

TEST(ModelSpec, SharedKeysAndValuesByHand) {
  const ModelSpec m{
      .layers = 3, .heads = 4, .width = 16, .block = 8, .vocabulary = 10, .kv_heads = 1};
  EXPECT_EQ(m.kv_width(), 4);
  // Embeddings; norms; qkv 16 + 2 * 4 wide; projection, up and down; last norm.
  EXPECT_EQ(m.num_parameters(), 18 * 16 + 3 * (64 + 24 * 17 + 16 * 17 + 64 * 17 + 16 * 65) + 32);
  const auto sizes = m.parameter_sizes();
  EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), m.num_parameters());
}

TEST(ModelSpec, AnUnknownPresetNamesTheKnownOnes) {
  const auto result = preset("nan0");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
  EXPECT_NE(result.status().message().find("nano, char, baby, gpt2"), std::string::npos);
  ASSERT_TRUE(preset("baby").ok());
  EXPECT_EQ(preset("baby")->width, 384);
}

}  // namespace
}  // namespace hanji::plan
