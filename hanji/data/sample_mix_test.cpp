#include "hanji/data/internal/sample_mix.h"

#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <vector>

#include "hanji/base/simd.h"

namespace hanji::data::internal {
namespace {

plan::ImageStages mixing_by(std::string_view stages) {
  return plan::parse_image_stages("center_crop, " + std::string(stages)).or_throw();
}

TEST(SampleMix, WeightsOfMixupAreBetaDistributed) {
  for (const auto& [text, variance] :
       {std::pair("mixup(alpha = 1)", 1.0 / 12), std::pair("mixup(alpha = 0.2)", 0.25 / 1.4),
        std::pair("mixup(alpha = 4)", 0.25 / 9)}) {
    double sum = 0, squares = 0;
    constexpr int kDraws = 20000;
    for (uint64_t key = 0; key < kDraws; ++key) {
      const SampleMix mix = draw_mix(mixing_by(text), 32, key);
      EXPECT_EQ(mix.keep, mix.label);
      EXPECT_EQ(mix.box.width, 0);
      sum += mix.keep;
      squares += (mix.keep - 0.5) * (mix.keep - 0.5);
    }
    // Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)); five deviations of at most 0.5 / sqrt(20000).
    EXPECT_NEAR(sum / kDraws, 0.5, 0.018) << text;
    EXPECT_NEAR(squares / kDraws, variance, 0.01) << text;
  }
}

TEST(SampleMix, BoxesOfCutmixLieInTheSampleAndKeepWhatTheyLeave) {
  std::set<int64_t> places;
  for (uint64_t key = 0; key < 2000; ++key) {
    const SampleMix mix = draw_mix(mixing_by("cutmix"), 20, key);
    EXPECT_EQ(mix.keep, 1);
    EXPECT_GE(mix.box.x, 0);
    EXPECT_LE(mix.box.x + mix.box.width, 20);
    EXPECT_LE(mix.box.y + mix.box.height, 20);
    EXPECT_FLOAT_EQ(mix.label, 1 - static_cast<float>(mix.box.width * mix.box.height) / 400);
    places.insert(mix.box.x);
  }
  EXPECT_GT(places.size(), 15U);
}

TEST(SampleMix, EachProbabilityIsThatOfItsStage) {
  const auto stages = mixing_by("mixup(probability = 0.5), cutmix(probability = 0.25)");
  int mixed = 0, cut = 0;
  for (uint64_t key = 0; key < 4000; ++key) {
    const SampleMix mix = draw_mix(stages, 224, key);
    mixed += mix.keep < 1 ? 1 : 0;
    cut += mix.box.width > 0 ? 1 : 0;
    EXPECT_TRUE(mix.keep == 1 || mix.box.width == 0);
  }
  EXPECT_NEAR(mixed, 2000, 160) << "five deviations of sqrt(4000 x 0.5 x 0.5)";
  EXPECT_NEAR(cut, 1000, 140) << "five deviations of sqrt(4000 x 0.25 x 0.75)";
}

TEST(SampleMix, PixelsAreThoseOfTheFormulaInBothSamples) {
  constexpr int64_t kSize = 19;
  std::vector<float> a(3 * kSize * kSize), b(a.size());
  std::iota(a.begin(), a.end(), 1.0F);
  std::iota(b.begin(), b.end(), -5000.0F);
  const auto before_a = a, before_b = b;
  const SampleMix of_a{.box = {3, 0, 9, 7}}, of_b{.keep = 0.25F};
  mix_samples(of_a, of_b, kSize, a.data(), b.data());
  for (int64_t i = 0; i < std::ssize(a); ++i) {
    const int64_t x = i % kSize, y = i / kSize % kSize;
    const bool is_in_box = x >= 3 && x < 12 && y < 7;
    EXPECT_EQ(a[i], is_in_box ? before_b[i] : before_a[i]) << i;
    EXPECT_EQ(b[i], 0.25F * before_b[i] + 0.75F * before_a[i]) << i;
  }
}

TEST(SampleMix, EveryVectorWidthHasTheSameBytes) {
  const base::Simd before = base::simd_in_use().or_throw();
  constexpr int64_t kSize = 37;
  std::vector<float> expected;
  for (const base::Simd level : base::kSimdLevels) {
    if (!base::check_simd(level).ok()) continue;
    base::throw_if_error(base::use_simd(level));
    std::vector<float> a(3 * kSize * kSize), b(a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = 1.0F / static_cast<float>(i + 1);
      b[i] = static_cast<float>(i) / 7;
    }
    mix_samples({.keep = 0.3F}, {.keep = 0.7F, .box = {5, 5, 20, 9}}, kSize, a.data(), b.data());
    a.insert(a.end(), b.begin(), b.end());
    if (expected.empty()) expected = a;
    EXPECT_EQ(a, expected) << name_of(level);
  }
  base::throw_if_error(base::use_simd(before));
}

}  // namespace
}  // namespace hanji::data::internal
