#include "hanji/data/internal/image_renderer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "hanji/base/simd.h"
#include "hanji/data/internal/test_images.h"

namespace hanji::data::internal {
namespace {

using testing::Each;
using testing::FloatEq;

const plan::ImageStages kLevels = [] {
  plan::ImageStages stages;
  stages.deviation = {1 / 255.0, 1 / 255.0, 1 / 255.0};  // a sample is its levels
  return stages;
}();

/// In memory that begins as a batch's does.
std::vector<float> render_by(ImageRenderer& renderer, const StoredImage& image,
                             const ImageView& view, int64_t size, const plan::ImageStages& stages) {
  constexpr size_t kGuard = 64;
  const auto floats = static_cast<size_t>(3 * size * size);
  std::vector<float> memory(floats + 2 * kGuard + 16, -1);
  const size_t shift = reinterpret_cast<uintptr_t>(memory.data()) / sizeof(float) % 16;
  const std::span<float> all(memory.data() + 16 - shift, floats + 2 * kGuard);
  const std::span<float> out = all.subspan(kGuard, floats);
  base::throw_if_error(renderer.render(image, view, ColourScale(stages), size, out.data()));
  EXPECT_THAT(all.first(kGuard), Each(-1)) << "nothing before the sample is written";
  EXPECT_THAT(all.last(kGuard), Each(-1)) << "nothing behind the sample is written";
  return {out.begin(), out.end()};
}

std::vector<float> render_levels(const StoredImage& image, const ImageView& view, int64_t size,
                                 const plan::ImageStages& stages = kLevels) {
  ImageRenderer renderer;
  return render_by(renderer, image, view, size, stages);
}

StoredImage raw_image(const std::vector<uint8_t>& pixels, ImageSize size) {
  return {.size = size, .bytes = std::as_bytes(std::span(pixels))};
}

/// The same filter in doubles, without rounding in between.
double exact_pixel(const std::vector<uint8_t>& pixels, ImageSize image, PixelBox crop, int64_t size,
                   std::array<int64_t, 3> place) {
  const auto weight_of = [size](int64_t inputs, int64_t i, int64_t k) {
    const double step = static_cast<double>(inputs) / static_cast<double>(size);
    const double reach = std::max(step, 1.0);
    const double at = static_cast<double>(k) + 0.5 - (static_cast<double>(i) + 0.5) * step;
    return std::max(0.0, 1 - std::abs(at) / reach);
  };
  double sum = 0, total = 0;
  for (int64_t y = 0; y < crop.height; ++y) {
    const double of_row = weight_of(crop.height, place[1], y);
    for (int64_t x = 0; of_row > 0 && x < crop.width; ++x) {
      const double weight = of_row * weight_of(crop.width, place[2], x);
      sum += weight * pixels[3 * ((crop.y + y) * image.width + crop.x + x) + place[0]];
      total += weight;
    }
  }
  return sum / total;
}

TEST(ImageRenderer, ResizesByTheAntialiasedTriangle) {
  const ImageSize image{90, 70};
  const auto pixels = test_pixels(90, 70);
  for (const int64_t size : {5, 16, 31, 100}) {
    for (const PixelBox crop : {PixelBox{0, 0, 90, 70}, PixelBox{7, 11, 33, 58}}) {
      const auto found = render_levels(raw_image(pixels, image), {.crop = crop}, size);
      for (int64_t i = 0; i < std::ssize(found); i += 7) {
        const double expected =
            exact_pixel(pixels, image, crop, size, {i / (size * size), i / size % size, i % size});
        // Two roundings to levels, and weights of 14 bits.
        ASSERT_NEAR(found[i], expected, 1.1) << size << " at " << i;
      }
    }
  }
}

TEST(ImageRenderer, TheSameSizeIsACopyInPlanes) {
  const auto pixels = test_pixels(12, 12);
  const auto found = render_levels(raw_image(pixels, {12, 12}), {.crop = {0, 0, 12, 12}}, 12);
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i], static_cast<float>(pixels[3 * (i % 144) + i / 144])) << i;
  }
}

TEST(ImageRenderer, APartOfTheSampleSizeIsACopyAtEveryVectorWidth) {
  const base::Simd before = base::simd_in_use().or_throw();
  for (const base::Simd level : base::kSimdLevels) {
    if (!base::check_simd(level).ok()) continue;
    base::throw_if_error(base::use_simd(level));
    for (const int64_t size : {1, 3, 7, 32, 128, 144}) {
      const ImageSize image{size + 2, size + 1};
      const auto pixels = test_pixels(image.width, image.height);
      for (const bool is_flipped : {false, true}) {
        // The last row of the part is the image's: nothing is to be read behind it.
        const auto found = render_levels(
            raw_image(pixels, image), {.crop = {2, 1, size, size}, .is_flipped = is_flipped}, size);
        for (int64_t i = 0; i < std::ssize(found); ++i) {
          const int64_t plane = i / size / size, y = i / size % size;
          const int64_t x = is_flipped ? size - 1 - i % size : i % size;
          ASSERT_EQ(found[i], pixels[3 * ((1 + y) * image.width + 2 + x) + plane])
              << size << " at " << i;
        }
      }
    }
  }
  base::throw_if_error(base::use_simd(before));
}

TEST(ImageRenderer, WhatOneKeepsBetweenSamplesChangesNone) {
  const ImageSize size_of_image{600, 80};
  const auto pixels = test_pixels(600, 80);
  const StoredImage image = raw_image(pixels, size_of_image);
  ImageRenderer kept;
  // Widths whose weights take each other's place, and moves that need more room or less.
  for (const int64_t width : {20, 276, 532, 20, 64}) {
    for (const int64_t shift : {0, 5, -2, 64}) {
      const ImageView view{.crop = {3, 2, width, 64}, .shift_x = shift, .shift_y = -shift};
      EXPECT_EQ(render_by(kept, image, view, 64, kLevels), render_levels(image, view, 64))
          << width << " " << shift;
    }
  }
}

TEST(ImageRenderer, AnEvenColourStaysWhatItIs) {
  for (const uint8_t level : {0, 1, 127, 255}) {
    const std::vector<uint8_t> pixels(3 * 77 * 53, level);
    for (const int64_t size : {1, 20, 99}) {
      EXPECT_THAT(render_levels(raw_image(pixels, {77, 53}), {.crop = {1, 2, 70, 50}}, size),
                  Each(FloatEq(level)));
    }
  }
}

TEST(ImageRenderer, AJpegIsItsDecodedPixelsResized) {
  const std::string stream = encode_jpeg({.width = 64, .height = 48});
  JpegReader reader;
  base::throw_if_error(reader.begin(bytes_of(stream), {64, 48}, {0, 0, 64, 48}));
  std::vector<uint8_t> pixels;
  for (int row = 0; row < 48; ++row) {
    const uint8_t* begin = reader.next_row().or_throw();
    pixels.insert(pixels.end(), begin, begin + 3 * 64);
  }
  const ImageView view{.crop = {10, 5, 40, 41}, .is_flipped = true};
  EXPECT_EQ(render_levels({{64, 48}, true, bytes_of(stream)}, view, 24),
            render_levels(raw_image(pixels, {64, 48}), view, 24));
}

TEST(ImageRenderer, MirrorsAndMovesAndCutsAndFillsWithTheMeanColour) {
  const auto pixels = test_pixels(8, 8);
  const StoredImage image = raw_image(pixels, {8, 8});
  const auto plain = render_levels(image, {.crop = {0, 0, 8, 8}}, 8);
  const ImageView view{
      .crop = {0, 0, 8, 8}, .is_flipped = true, .shift_x = 2, .shift_y = -3, .hole = {1, 0, 2, 2}};
  const auto found = render_levels(image, view, 8);
  for (int64_t i = 0; i < std::ssize(found); ++i) {
    const int64_t plane = i / 64, y = i / 8 % 8, x = i % 8;
    const bool is_in_hole = x >= 1 && x < 3 && y < 2;
    const bool is_covered = x >= 2 && y < 5 && !is_in_hole;
    const float expected = is_covered ? plain[plane * 64 + (y + 3) * 8 + 7 - (x - 2)] : 0;
    EXPECT_EQ(found[i], expected) << plane << " " << y << " " << x;
  }
}

TEST(ImageRenderer, MirrorsUpAndDownBeforeItMoves) {
  const auto pixels = test_pixels(8, 8);
  const StoredImage image = raw_image(pixels, {8, 8});
  const auto plain = render_levels(image, {.crop = {0, 0, 8, 8}}, 8);
  ImageView view{.crop = {0, 0, 8, 8}, .is_vertically_flipped = true, .shift_y = 1};
  const auto found = render_levels(image, view, 8);
  for (int64_t i = 0; i < std::ssize(found); ++i) {
    const int64_t plane = i / 64, y = i / 8 % 8, x = i % 8;
    EXPECT_EQ(found[i], y < 1 ? 0 : plain[plane * 64 + (7 - (y - 1)) * 8 + x]) << y << " " << x;
  }
  view.change = [](uint8_t*, int64_t) {};
  EXPECT_EQ(render_levels(image, view, 8), found) << "by a tile";
}

TEST(ImageRenderer, NormalisesEachChannelByItsMeanAndDeviation) {
  plan::ImageStages stages;
  stages.mean = {0.5, 0.25, 0};
  stages.deviation = {0.5, 0.25, 2};
  const std::vector<uint8_t> pixels = {255, 0, 51};
  const auto found = render_levels(raw_image(pixels, {1, 1}), {.crop = {0, 0, 1, 1}}, 1, stages);
  EXPECT_THAT(found, testing::ElementsAre(testing::FloatNear(1, 1e-6), testing::FloatNear(-1, 1e-6),
                                          testing::FloatNear(0.1F, 1e-6)));
}

double level_of(double value) { return std::clamp(value, 0.0, 255.0); }
double gray_of(const std::array<double, 3>& c) {
  return 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2];
}

TEST(ImageRenderer, ColoursAreThoseOfTheFormulas) {
  const auto pixels = test_pixels(21, 21);
  const StoredImage image = raw_image(pixels, {21, 21});
  for (const auto& [brightness, contrast, saturation] :
       {std::array{1.4, 1.0, 1.0}, std::array{1.0, 0.6, 1.0}, std::array{1.0, 1.4, 1.0},
        std::array{1.0, 1.0, 0.0}, std::array{1.0, 1.0, 1.5}, std::array{0.7, 1.3, 0.5}}) {
    const auto times_one = [](double f) { return static_cast<int32_t>(f * ColourFactors::kOne); };
    const auto found = render_levels(
        image,
        {.crop = {0, 0, 21, 21},
         .colour = {times_one(brightness), times_one(contrast), times_one(saturation)}},
        21);
    std::vector<std::array<double, 3>> exact;
    double mean = 0;
    for (size_t i = 0; i < 441; ++i) {
      auto& one = exact.emplace_back();
      for (size_t c = 0; c < 3; ++c) one[c] = level_of(pixels[3 * i + c] * brightness);
      mean += gray_of(one) / 441;
    }
    for (size_t i = 0; i < 441; ++i) {
      for (double& level : exact[i]) level = level_of(level * contrast + mean * (1 - contrast));
      const double gray = gray_of(exact[i]);
      for (size_t c = 0; c < 3; ++c) {
        const double expected = level_of(exact[i][c] * saturation + gray * (1 - saturation));
        // Half a level by each of three roundings and two of grays, times later factors of up to 1.5,
        // and 1/4096 of 255 for each factor's own rounding.
        ASSERT_NEAR(found[c * 441 + i], expected, 2.3) << contrast << " " << i;
      }
    }
  }
}

/// Of red, green, blue by angle, chroma and largest level, in doubles.
std::array<double, 3> turned(const std::array<double, 3>& c, double sextants) {
  const double most = std::ranges::max(c), chroma = most - std::ranges::min(c);
  double angle = 0;
  if (chroma > 0 && most == c[0]) {
    angle = (c[1] - c[2]) / chroma;
  } else if (chroma > 0 && most == c[1]) {
    angle = (c[2] - c[0]) / chroma + 2;
  } else if (chroma > 0) {
    angle = (c[0] - c[1]) / chroma + 4;
  }
  std::array<double, 3> out = {};
  for (size_t i = 0; i < 3; ++i) {
    const double k = std::fmod(angle + sextants + 12 + std::array{5, 3, 1}[i], 6);
    out[i] = most - chroma * std::max(0.0, std::min({k, 4 - k, 1.0}));
  }
  return out;
}

TEST(ImageRenderer, AHueIsThePixelsAngleTurned) {
  auto pixels = test_pixels(21, 21);
  std::fill_n(pixels.begin(), 3, uint8_t{90});  // gray has none
  const StoredImage image = raw_image(pixels, {21, 21});
  for (const float sextants : {-3.0F, -1.25F, -0.1F, 0.6F, 2.0F, 3.0F}) {
    const auto found =
        render_levels(image, {.crop = {0, 0, 21, 21}, .colour = {.hue_sextants = sextants}}, 21);
    for (size_t i = 0; i < 441; ++i) {
      const auto expected = turned(
          {double(pixels[3 * i]), double(pixels[3 * i + 1]), double(pixels[3 * i + 2])}, sextants);
      for (size_t c = 0; c < 3; ++c) {
        // Half a level by rounding, and floats of 24 bits.
        ASSERT_NEAR(found[c * 441 + i], expected[c], 0.501) << sextants << " " << i << " " << c;
      }
    }
  }
}

TEST(ImageRenderer, FactorsOfOneAndAnIdleStageChangeNoByte) {
  const auto pixels = test_pixels(30, 20);
  const StoredImage image = raw_image(pixels, {30, 20});
  ImageView view{.crop = {2, 1, 25, 18}, .is_flipped = true, .shift_x = 2, .shift_y = -1};
  const auto plain = render_levels(image, view, 17);
  view.change = [](uint8_t*, int64_t) {};
  EXPECT_EQ(render_levels(image, view, 17), plain);
}

TEST(ImageRenderer, AStageOfTheProgramSeesAndChangesTheResizedPixels) {
  const auto pixels = test_pixels(16, 16);
  ImageView view{.crop = {0, 0, 16, 16}, .shift_y = 1};
  view.change = [&](uint8_t* tile, int64_t row_bytes) {
    EXPECT_EQ(tile[2 * row_bytes + 4 * 3 + 1], pixels[3 * (2 * 16 + 3) + 1]);
    tile[0] = 77;
  };
  EXPECT_EQ(render_levels(raw_image(pixels, {16, 16}), view, 16)[16], 77)
      << "moved down by one row";
}

TEST(ImageRenderer, RejectsRawBytesOfAnotherSize) {
  const std::vector<uint8_t> pixels(3 * 4 * 4 - 1);
  float out[3];
  ImageRenderer renderer;
  EXPECT_EQ(
      renderer
          .render(raw_image(pixels, {4, 4}), {.crop = {0, 0, 4, 4}}, ColourScale(kLevels), 1, out)
          .code(),
      Code::kCorrupt);
}

TEST(LineFilter, WeightsOfEachOutputAddUpToOneWithinTheLine) {
  LineFilter filter;
  for (const int64_t inputs : {1, 2, 3, 7, 100, 5000}) {
    for (const int64_t outputs : {1, 2, 3, 50, 224}) {
      filter.make(inputs, outputs);
      filter.make(inputs, outputs);
      LineFilter fresh;
      fresh.make(inputs, outputs);
      ASSERT_EQ(filter.weights, fresh.weights) << inputs << " " << outputs;
      for (int64_t i = 0; i < outputs; ++i) {
        int sum = 0;
        for (int64_t k = 0; k < filter.taps && filter.first[i] + k < inputs; ++k) {
          sum += filter.weights[i * filter.taps + k];
        }
        ASSERT_EQ(sum, LineFilter::kWeightOne) << inputs << " " << outputs << " " << i;
        ASSERT_GE(filter.first[i], 0);
      }
    }
  }
}

TEST(ImageRenderer, EveryVectorWidthHasTheSameBytes) {
  const base::Simd before = base::simd_in_use().or_throw();
  const auto pixels = test_pixels(120, 90);
  const ImageView view{.crop = {3, 5, 101, 77},
                       .is_flipped = true,
                       .colour = {3000, 5000, 6000, 0.7F},
                       .shift_x = 1};
  const plan::ImageStages stages = plan::parse_image_stages(plan::kUsualImageStages).or_throw();
  std::vector<float> expected;
  for (const base::Simd level : base::kSimdLevels) {
    if (!base::check_simd(level).ok()) continue;
    base::throw_if_error(base::use_simd(level));
    const auto found = render_levels(raw_image(pixels, {120, 90}), view, 37, stages);
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected) << name_of(level);
  }
  base::throw_if_error(base::use_simd(before));
}

}  // namespace
}  // namespace hanji::data::internal
