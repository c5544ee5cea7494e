#include "hanji/compute/measure.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/clock.h"
#include "hanji/compute/internal/switch_guard.h"

namespace hanji::compute {
namespace {

struct Figures {
  double seconds = 1;
  double error = 0;
  bool repeats = true;
};

/// Paths with made-up times and errors.
Measurer made_up(Figures mkl, Figures onednn, Figures flash = {}, Figures math = {}) {
  const auto candidate = [](std::string name, Figures figures) {
    return Candidate{.name = std::move(name),
                     .seconds = figures.seconds,
                     .rate = 1 / figures.seconds,
                     .error = figures.error,
                     .repeats = figures.repeats};
  };
  return {[=](Gemm gemm, const MeasureOptions&) {
            return candidate("gemm." + std::string(name_of(gemm)),
                             gemm == Gemm::kMkl ? mkl : onednn);
          },
          [=](Attention attention, Gemm, const MeasureOptions&) {
            return candidate("attention." + std::string(name_of(attention)),
                             attention == Attention::kFlash ? flash : math);
          }};
}

Result<KernelChoice> chosen(const MeasureOptions& options, const Measurer& measurer) {
  HANJI_ASSIGN_OR_RETURN(const MeasuredKernels found, measure(options, measurer));
  return found.choice;
}

TEST(Measure, TheFasterPathWinsAndTheReasonSaysByHowMuch) {
  const auto choice =
      chosen({}, made_up({.seconds = 2}, {.seconds = 1}, {.seconds = 1}, {.seconds = 3}));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->gemm, Gemm::kOneDnn);
  EXPECT_EQ(choice->attention, Attention::kFlash);
  EXPECT_THAT(choice->why, testing::HasSubstr("gemm.onednn (100 % faster than gemm.mkl)"));
}

TEST(Measure, AFastPathWithTheErrorOfBf16LosesUnderFloat32) {
  const auto choice = chosen({}, made_up({.seconds = 2}, {.seconds = 1, .error = 3.6e-3}));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->gemm, Gemm::kMkl);
  EXPECT_THAT(choice->why, testing::HasSubstr("too inaccurate"));
}

constexpr Figures kRounded{.seconds = 1, .error = 2.7e-3};  // to bf16, as matrix units do

KernelChoice chosen_under_medium(Figures mkl, Figures onednn, Figures flash = {},
                                 Figures math = {}) {
  return chosen({.products = Products::kMedium}, made_up(mkl, onednn, flash, math)).or_throw();
}

TEST(Measure, UnderMediumTheSamePathWinsAndBothErrorsAreSaid) {
  const KernelChoice choice = chosen_under_medium({.seconds = 4, .error = 5e-7}, kRounded);
  EXPECT_EQ(choice.gemm, Gemm::kOneDnn);
  EXPECT_EQ(choice.products, Products::kMedium);
  EXPECT_EQ(choice.gemm_error, 2.7e-3);
  EXPECT_EQ(choice.products_why,
            "medium, one bf16 product with float32 sums, error 2.7e-03 (at most 3.9e-03); highest "
            "would be 5.0e-07 at 2.5e-10 GF/s");
}

TEST(Measure, APathWorseThanOneProductInBf16LosesUnderBoth) {
  const Figures truncated{.seconds = 1, .error = 5.5e-3};
  EXPECT_EQ(chosen({}, made_up({.seconds = 4}, truncated))->gemm, Gemm::kMkl);
  const KernelChoice choice = chosen_under_medium({.seconds = 4}, truncated);
  EXPECT_EQ(choice.gemm, Gemm::kMkl);
  EXPECT_EQ(choice.products, Products::kHighest);
  EXPECT_THAT(choice.products_why, testing::HasSubstr("error 5.5e-03 (more than medium allows)"));
}

TEST(Measure, MediumChangesNothingWhereAllPathsAreWithinHighest) {
  const KernelChoice choice =
      chosen_under_medium({.seconds = 2, .error = 5e-7}, {.seconds = 1, .error = 9e-7});
  EXPECT_EQ(choice.gemm, Gemm::kOneDnn);
  EXPECT_EQ(choice.products, Products::kHighest);
  EXPECT_EQ(choice.products_why,
            "medium changes nothing here: gemm.mkl 5e-10 GF/s with error 5.0e-07 (within highest), "
            "gemm.onednn 1e-09 GF/s with error 9.0e-07 (within highest); highest allows 7.6e-06, "
            "medium 3.9e-03");
}

TEST(Measure, MediumChangesNothingForAPathThatIsNotClearlyFaster) {
  const KernelChoice choice = chosen_under_medium({.seconds = 1.05}, kRounded);
  EXPECT_EQ(choice.gemm, Gemm::kMkl);
  EXPECT_EQ(choice.products, Products::kHighest);
  EXPECT_THAT(choice.why, testing::HasSubstr("gemm.onednn, less accurate, is only 5 % faster"));
  EXPECT_THAT(choice.products_why, testing::HasSubstr("(less accurate and not clearly faster)"));
}

/// Bits of `run` and `stable` are those of every repetition.
TEST(Measure, MediumTakesNoPathWithOtherBitsInEachCall) {
  const KernelChoice choice =
      chosen_under_medium({.seconds = 4}, {.seconds = 1, .error = 2.7e-3, .repeats = false});
  EXPECT_EQ(choice.gemm, Gemm::kMkl);
  EXPECT_EQ(choice.products, Products::kHighest);
  EXPECT_THAT(choice.products_why, testing::HasSubstr("(other bits in each call)"));
}

TEST(Measure, MediumChangesNothingBesideAnotherPathThatWasAskedFor) {
  const MeasureOptions options{.products = Products::kMedium, .gemm = Gemm::kMkl};
  const auto choice = chosen(options, made_up({.seconds = 4}, kRounded));
  EXPECT_EQ(choice->products, Products::kHighest);
  EXPECT_THAT(choice->products_why, testing::HasSubstr("the only path that compute.gemm leaves"));
}

TEST(Measure, AttentionMayRoundWhereItsProductsDo) {
  const Figures rounded{.seconds = 1, .error = 1e-3}, worse{.seconds = 1, .error = 0.1};
  const Figures slow{.seconds = 2};
  EXPECT_EQ(chosen_under_medium({.seconds = 4}, kRounded, rounded, slow).attention,
            Attention::kFlash);
  EXPECT_EQ(chosen_under_medium({.seconds = 4}, kRounded, worse, slow).attention, Attention::kMath);
  EXPECT_EQ(chosen_under_medium({.seconds = 1}, kRounded, rounded, slow).attention,
            Attention::kMath)
      << "the gemm is within highest";
}

TEST(Measure, WhatMediumWouldAllowIsRefusedWithTheKey) {
  const auto refused = chosen({.gemm = Gemm::kOneDnn}, made_up({}, kRounded));
  EXPECT_THAT(refused.status().message(),
              testing::HasSubstr("gemm.onednn has an error of 2.7e-03; 7.6e-06 is allowed; set "
                                 "compute.products = \"medium\", which allows 3.9e-03"));
}

TEST(Measure, ProductsOfAnotherToleranceThanPlannedAreRefused) {
  KernelChoice choice{.gemm = Gemm::kOneDnn};
  const auto check = [&](double error) {
    return check_products(choice, [=](Gemm) { return error; });
  };
  EXPECT_TRUE(check(5e-7).ok());
  EXPECT_THAT(check(2.7e-3).message(),
              testing::HasSubstr("error of 2.7e-03 on this processor, which is not "
                                 "compute.products = highest"));
  choice.products = Products::kMedium;
  EXPECT_TRUE(check(2.7e-3).ok());
  EXPECT_EQ(check(5e-7).code(), Code::kUnsupported);
  choice = {.gemm = Gemm::kMkl};
  EXPECT_TRUE(check(2.7e-3).ok()) << "which is not looked at";
}

TEST(Measure, TheSameErrorIsFineUnderBf16) {
  const auto choice = chosen({.precision = Precision::kBFloat16},
                             made_up({.seconds = 2}, {.seconds = 1, .error = 3.6e-3}));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->gemm, Gemm::kOneDnn);
}

TEST(Measure, AnEarlierChoiceStaysUnlessAnotherIsClearlyFaster) {
  const KernelChoice before{.gemm = Gemm::kMkl, .attention = Attention::kMath};
  const auto choose = [&](double onednn_seconds) {
    return chosen({.before = before}, made_up({.seconds = 1}, {.seconds = onednn_seconds}))
        .or_throw();
  };
  EXPECT_EQ(choose(0.95).gemm, Gemm::kMkl);
  EXPECT_THAT(choose(0.95).why,
              testing::HasSubstr("gemm.mkl as before (gemm.onednn is only 5 % faster)"));
  EXPECT_EQ(choose(0.95).attention, Attention::kMath) << "equal to flash, which is listed first";
  EXPECT_EQ(choose(0.8).gemm, Gemm::kOneDnn);
  const auto inaccurate = chosen({.before = before}, made_up({.seconds = 1, .error = 1}, {}));
  EXPECT_EQ(inaccurate->gemm, Gemm::kOneDnn);
}

/// Products of these rates in float32 and in any other dtype.
Measurer with_rates(double float32, double other) {
  Measurer measurer = made_up({}, {});
  measurer.gemm = [=](Gemm gemm, const MeasureOptions& options) {
    const double rate = options.precision == Precision::kFloat32 ? float32 : other;
    return Candidate{"gemm." + std::string(name_of(gemm)), 1 / rate, rate, 0, true};
  };
  return measurer;
}

TEST(Measure, BesideADtypeOfLessPrecisionStandsTheRateOfFloat32) {
  const auto bf16 = chosen({.precision = Precision::kBFloat16}, with_rates(70e9, 4e9));
  ASSERT_TRUE(bf16.ok());
  EXPECT_EQ(bf16->gemm_flops_per_second, 4e9);
  EXPECT_EQ(bf16->float32_flops_per_second, 70e9);
  for (const Precision precision : {Precision::kFloat32, Precision::kFloat64}) {
    EXPECT_EQ(chosen({.precision = precision}, with_rates(70e9, 4e9))->float32_flops_per_second, 0);
  }
}

TEST(Measure, ProductsOfFloat32ThatAreTooInaccurateAreNoRateOfIt) {
  Measurer measurer = with_rates(70e9, 4e9);
  measurer.gemm = [exact = measurer.gemm](Gemm gemm, const MeasureOptions& options) {
    Candidate one = exact(gemm, options);
    if (gemm == Gemm::kOneDnn) one.rate *= 2;
    if (gemm == Gemm::kOneDnn && options.precision == Precision::kFloat32) one.error = 3.6e-3;
    return one;
  };
  EXPECT_EQ(chosen({.precision = Precision::kBFloat16}, measurer)->float32_flops_per_second, 70e9);
}

/// With made-up seconds of both ways to a weight's gradient.
Measurer with_gradients(double rounded, Figures float32) {
  Measurer measurer = made_up({}, {});
  measurer.weight_gradient = [=](WeightGradient one, Gemm, const MeasureOptions&) {
    const bool sums = one == WeightGradient::kFloat32;
    return Candidate{"weight_gradient." + std::string(name_of(one)),
                     sums ? float32.seconds : rounded, 1, sums ? float32.error : 1e-3, true};
  };
  return measurer;
}

TEST(Measure, WeightGradientsOfBf16ComeTheFasterWay) {
  const MeasureOptions bf16{.precision = Precision::kBFloat16};
  const auto slow = chosen(bf16, with_gradients(1, {.seconds = 2}));
  EXPECT_EQ(slow->weight_gradient, WeightGradient::kRounded);
  EXPECT_THAT(slow->why, testing::HasSubstr("weight_gradient.rounded (100 % faster than "
                                            "weight_gradient.float32)"));
  EXPECT_EQ(chosen(bf16, with_gradients(2, {.seconds = 1}))->weight_gradient,
            WeightGradient::kFloat32);
  EXPECT_EQ(chosen(bf16, with_gradients(2, {.seconds = 1, .error = 1}))->weight_gradient,
            WeightGradient::kRounded);
  EXPECT_EQ(chosen(bf16, made_up({}, {}))->weight_gradient, WeightGradient::kRounded);
  EXPECT_EQ(chosen({}, with_gradients(2, {.seconds = 1}))->weight_gradient,
            WeightGradient::kRounded)
      << "float32 has nothing to round";
}

TEST(Measure, AnEarlierWayToWeightGradientsStaysUnlessAnotherIsClearlyFaster) {
  const KernelChoice before{.weight_gradient = WeightGradient::kFloat32};
  const MeasureOptions bf16{.precision = Precision::kBFloat16, .before = before};
  EXPECT_EQ(chosen(bf16, with_gradients(0.95, {.seconds = 1}))->weight_gradient,
            WeightGradient::kFloat32);
  EXPECT_EQ(chosen(bf16, with_gradients(0.8, {.seconds = 1}))->weight_gradient,
            WeightGradient::kRounded);
}

TEST(Measure, WhatWasAskedForIsTakenThoughItIsSlower) {
  const auto choice = chosen({.gemm = Gemm::kMkl}, made_up({.seconds = 2}, {.seconds = 1}));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->gemm, Gemm::kMkl);
}

TEST(Measure, WhatWasAskedForIsRefusedWhenItIsTooInaccurate) {
  const auto choice = chosen({.gemm = Gemm::kOneDnn}, made_up({}, {.seconds = 1, .error = 0.1}));
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), Code::kUnsupported);
  EXPECT_THAT(choice.status().message(),
              testing::HasSubstr("gemm.onednn has an error of 1.0e-01; 7.6e-06 is allowed;"));
}

/// Made-up paths with tiles, where the precision is bf16.
Measurer with_tiles(Figures tiles, Figures math) {
  Measurer measurer = made_up({}, {}, {.seconds = 3}, math);
  measurer.attention = [=, others = measurer.attention](Attention attention, Gemm gemm,
                                                        const MeasureOptions& options) {
    if (attention != Attention::kTiles) return others(attention, gemm, options);
    return Candidate{"attention.tiles", tiles.seconds, 1 / tiles.seconds, tiles.error, true};
  };
  measurer.check_attention = [](Attention attention, Precision precision) {
    const bool has = attention != Attention::kTiles || precision == Precision::kBFloat16;
    return has ? Status() : base::unsupported("no tiles");
  };
  return measurer;
}

TEST(Measure, TilesAreOfferedWhereThePrecisionHasThem) {
  const Measurer measurer = with_tiles({.seconds = 1}, {.seconds = 2});
  const auto bf16 = chosen({.precision = Precision::kBFloat16}, measurer);
  ASSERT_TRUE(bf16.ok());
  EXPECT_EQ(bf16->attention, Attention::kTiles);
  EXPECT_THAT(bf16->why, testing::HasSubstr("attention.tiles (100 % faster than attention.math)"));
  const auto float32 = chosen({}, measurer);
  ASSERT_TRUE(float32.ok());
  EXPECT_EQ(float32->attention, Attention::kMath);
  const auto without = chosen({.precision = Precision::kBFloat16}, made_up({}, {}));
  EXPECT_NE(without->attention, Attention::kTiles);
  const auto asked = chosen({.attention = Attention::kTiles}, measurer);
  EXPECT_EQ(asked.status().code(), Code::kUnsupported);
}

TEST(Measure, TilesThatAreSlowerOrOffByMoreThanTheirRoundingsLose) {
  const auto choose = [](Figures tiles) {
    return chosen({.precision = Precision::kBFloat16}, with_tiles(tiles, {.seconds = 2}))
        .or_throw();
  };
  EXPECT_EQ(choose({.seconds = 2.1}).attention, Attention::kMath);
  const double allowed = allowed_error(Precision::kBFloat16, roundings_of_tiles({}));
  EXPECT_EQ(choose({.seconds = 1, .error = 0.99 * allowed}).attention, Attention::kTiles);
  EXPECT_EQ(choose({.seconds = 1, .error = 1.01 * allowed}).attention, Attention::kMath);
  EXPECT_LT(allowed, allowed_error(Precision::kBFloat16, roundings_of_attention({})));
}

TEST(Measure, TheRealTilesAreWithinTheirRoundings) {
  const Measurer measurer = real_measurer();
  if (!measurer.check_attention(Attention::kTiles, Precision::kBFloat16).ok()) GTEST_SKIP();
  for (const Shapes& shapes : {Shapes{2, 64, 128, 2}, Shapes{1, 600, 64, 1}, Shapes{4, 33, 6, 2}}) {
    const auto choice = chosen(
        {.shapes = shapes, .precision = Precision::kBFloat16, .attention = Attention::kTiles},
        measurer);
    ASSERT_TRUE(choice.ok()) << choice.status().message();
    EXPECT_GT(choice->attention_error, 0);
  }
}

TEST(Measure, Float64StaysWithTheBlas) {
  const auto choice =
      chosen({.precision = Precision::kFloat64}, made_up({.seconds = 2}, {.seconds = 1}));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->gemm, Gemm::kMkl);
}

/// Of wide models, of many classes or ids, of long samples and of many at once.
TEST(Measure, NoMeasurementIsOfMoreThanItsLimits) {
  for (const Shapes asked :
       {Shapes{1, 16, 21841, 1}, Shapes{32, 64, 1'000'000, 1}, Shapes{64, 1024, 768, 12},
        Shapes{1, 131072, 16384, 128}, Shapes{4096, 1, 64, 1}, Shapes{1, 1 << 20, 64, 1}}) {
    Shapes seen;
    Measurer measurer = made_up({}, {});
    measurer.gemm = [&, gemm = measurer.gemm](Gemm one, const MeasureOptions& options) {
      seen = options.shapes;
      return gemm(one, options);
    };
    ASSERT_TRUE(chosen({.shapes = asked}, measurer).ok());
    EXPECT_EQ(seen, within_limits(asked));
    const int64_t rows = seen.batch * seen.block;
    EXPECT_GE(rows * seen.width, 1);
    // Inputs and weight in float64 and float32, outputs in float32; and scores with their gradients.
    EXPECT_LE(12 * rows * seen.width + (12 * seen.width + 4 * rows) * 4 * seen.width,
              kMaxMeasuredBytes);
    EXPECT_LE(16 * seen.heads * rows * seen.block, kMaxMeasuredBytes);
    EXPECT_LE(24.0 * static_cast<double>(rows * seen.width * seen.width), kMaxMeasuredFlops);
    EXPECT_EQ(seen.width % seen.heads, 0);
    EXPECT_EQ(asked.heads > 1, seen.heads > 1) << "heads are as wide as those that were asked for";
  }
  const Shapes small{.batch = 8, .block = 128, .width = 256, .heads = 8};
  EXPECT_EQ(within_limits(small), small);
}

TEST(Measure, SwitchesAreThoseOfARankAndAsBeforeAfterwards) {
  const int before = at::get_num_threads();
  const auto precision = at::globalContext().float32MatmulPrecision();
  {
    const SwitchGuard guard(Gemm::kOneDnn, before + 2);
    EXPECT_EQ(at::get_num_threads(), before + 2);
  }
  EXPECT_EQ(at::get_num_threads(), before);
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), precision);
}

/// Of at::mm() by this thread, the best of some; others only ever lengthen one.
double large_products_flops_per_second() {
  const SwitchGuard guard(Gemm::kMkl, 1);
  const at::Tensor x = at::ones({512, 512});
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const int64_t begin = base::now_ns();
    const at::Tensor y = x.mm(x);
    best =
        std::max(best, 2.0 * 512 * 512 * 512 * 1e9 / static_cast<double>(base::now_ns() - begin));
  }
  return best;
}

TEST(Measure, TheRealPathsAreAccurateAndHaveRates) {
  const auto choice =
      chosen({.shapes = {.batch = 2, .block = 32, .width = 64, .heads = 2}}, real_measurer());
  ASSERT_TRUE(choice.ok()) << choice.status().message();
  // Small products and attention are no faster than large products by the same libraries (8 times:
  // bf16 instructions have at most twice the rate, and these here may be disturbed), and the chosen
  // path is the fastest of them.
  const double large = large_products_flops_per_second();
  EXPECT_LT(choice->gemm_flops_per_second, 8 * large);
  EXPECT_GT(choice->gemm_flops_per_second, large / 200);
  EXPECT_LT(choice->attention_flops_per_second, 8 * large);
  EXPECT_GT(choice->attention_flops_per_second, large / 20000);
  EXPECT_LT(choice->attention_error, allowed_error(Precision::kFloat32, 64));
}

/// Their sums over keys have more roundings than products of so few features.
TEST(Measure, FewFeaturesOfManyRowsHaveAPath) {
  for (const Shapes& shapes : {Shapes{1, 1024, 8, 1}, Shapes{1, 256, 2, 1}, Shapes{4, 64, 4, 4}}) {
    const auto choice = chosen({.shapes = shapes}, real_measurer());
    ASSERT_TRUE(choice.ok()) << choice.status().message();
    EXPECT_GT(choice->attention_error, 0);
  }
}

TEST(Measure, OneRoundingIsWhatAValueIsOffAtMost) {
  for (const auto& [precision, type] : {std::pair{Precision::kBFloat16, at::kBFloat16},
                                        std::pair{Precision::kFloat32, at::kFloat}}) {
    const at::Tensor exact = at::arange(10'000, at::kDouble).mul(1.23457e-4).add(1);
    const double off = ((exact.to(type) - exact).abs() / exact).max().item<double>();
    EXPECT_LE(off, allowed_error(precision, 1));
    EXPECT_GT(off, allowed_error(precision, 1) / 2);
  }
}

at::Tensor rounded_to_bf16(const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); }

/// In sums of few terms and of many; and above what highest allows of the widest that are measured.
TEST(Measure, OneProductOfInputsRoundedToBf16IsWithinMediumAndNotWithinHighest) {
  for (const int64_t width : {16, 384, 1024}) {
    const auto values = [](int64_t rows, int64_t columns, double step) {
      return at::arange(rows * columns, at::kDouble)
          .square_()
          .mul_(step)
          .sin_()
          .view({rows, columns});
    };
    const at::Tensor x = values(16, width, 0.7).to(at::kFloat);
    const at::Tensor w = values(width, 256, 1.3).to(at::kFloat);
    const at::Tensor exact = x.to(at::kDouble).mm(w.to(at::kDouble));
    const at::Tensor off = (rounded_to_bf16(x).mm(rounded_to_bf16(w)) - exact).abs();
    const double error = off.max().item<double>() / exact.abs().max().item<double>();
    const double roundings = roundings_of_products({.width = width});
    EXPECT_LT(error, medium_error(1, roundings)) << width;
    EXPECT_GT(error, 4 * allowed_error(Precision::kFloat32, roundings)) << width;
  }
  const Shapes widest = within_limits({.width = 1 << 20, .heads = 1});
  EXPECT_LT(allowed_error(Precision::kFloat32, roundings_of_products(widest)),
            std::ldexp(1.0, -12));
}

TEST(Measure, TheRealPathsRepeatTheirBits) {
  for (const Gemm gemm : {Gemm::kMkl, Gemm::kOneDnn}) {
    const Candidate one = real_measurer().gemm(
        gemm, {.shapes = {.batch = 2, .block = 32, .width = 64}, .products = Products::kMedium});
    EXPECT_TRUE(one.repeats) << one.name;
  }
}

/// Of float32 through bf16: a 2^-9 of the largest entries.
TEST(Measure, ALossOfBitsIsAboveTheRoundingsOfAttention) {
  for (const Shapes& shapes : {Shapes{1, 64, 128, 2}, Shapes{1, 4096, 1024, 16}}) {
    EXPECT_LT(allowed_error(Precision::kFloat32, roundings_of_attention(shapes)),
              std::ldexp(1.0, -10));
  }
}

}  // namespace
}  // namespace hanji::compute
