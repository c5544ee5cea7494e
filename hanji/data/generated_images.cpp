#include "hanji/data/generated_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "hanji/base/checksum.h"
#include "hanji/base/random.h"
#include "hanji/data/internal/generated_parts.h"

namespace hanji::data {
namespace {

using base::Philox;
using Colour = std::array<float, 3>;

constexpr int64_t kSmallest = 8;
constexpr uint64_t kImages = 0x696d61676573;  // keeps these draws apart from others of the seed

/// Whether a shape covers a point; its outline lies about 1 from the centre.
using Covers = bool (*)(float x, float y);
constexpr std::array<Covers, 5> kShapes = {
    [](float x, float y) { return x * x + y * y <= 1; },
    [](float x, float y) { return std::abs(x) <= 1 && std::abs(y) <= 0.4F; },
    [](float x, float y) { return std::abs(y) <= 0.9F && std::abs(x) <= 0.55F * (y + 0.9F); },
    [](float x, float y) {
      const float across = std::abs(x), along = std::abs(y);
      return std::min(across, along) <= 0.25F && std::max(across, along) <= 1;
    },
    [](float x, float y) {
      const float square = x * x + y * y;
      return square <= 1 && square >= 0.4F;
    }};

float between(float low, float high, uint32_t word) {
  return low + (high - low) * static_cast<float>(base::uniform(word));
}

/// The most saturated colour of a hue in [0, 1), each channel in [0, 1].
Colour colour_of(float hue) {
  Colour colour;
  for (size_t channel = 0; channel < colour.size(); ++channel) {
    const float turned = std::fmod(6 * hue + 6 - 2 * static_cast<float>(channel), 6.0F);
    colour[channel] = std::clamp(std::abs(turned - 3) - 1, 0.0F, 1.0F);
  }
  return colour;
}

/// What differs from sample to sample, in pixels and in [-1, 1].
struct Scene {
  float x, y, radius, brightness, background, noise;
};

Scene scene_of(uint64_t key, float size) {
  const auto a = Philox::draw(key, 0, 0);
  const auto b = Philox::draw(key, 0, 1);
  return {.x = size * between(0.4F, 0.6F, a[0]),
          .y = size * between(0.4F, 0.6F, a[1]),
          .radius = size * between(0.26F, 0.38F, a[2]),
          .brightness = between(0.7F, 1, a[3]),
          .background = between(-0.6F, 0.2F, b[0]),
          .noise = between(0.05F, 0.3F, b[1])};
}

void add_noise(uint64_t key, float amplitude, std::span<float> values) {
  for (size_t begin = 0; begin < values.size(); begin += 4) {
    const auto words = Philox::draw(key, 1, begin / 4);
    const size_t end = std::min(values.size(), begin + 4);
    for (size_t i = begin; i < end; ++i) {
      values[i] += between(-amplitude, amplitude, words[i - begin]);
    }
  }
}

internal::GeneratedParts parts_of(const ImageOptions& options) {
  return {options.count, options.validation_fraction};
}

}  // namespace

Result<GeneratedImages> GeneratedImages::create(const ImageOptions& options) {
  const bool fraction = options.validation_fraction >= 0 && options.validation_fraction < 1;
  if (options.size < kSmallest || options.classes < 2 || !fraction) {
    return base::invalid_argument(
        fmt::format("images of {} pixels, {} classes, a validation_fraction of {}: at least {} "
                    "pixels, 2 classes "
                    "and a fraction in [0, 1) are needed",
                    options.size, options.classes, options.validation_fraction, kSmallest));
  }
  HANJI_RETURN_IF_ERROR(parts_of(options).check("images", "data.image_count"));
  return GeneratedImages(options);
}

int64_t GeneratedImages::count(Part part) const {
  const int64_t train = parts_of(options_).num_train();
  return part == Part::kTrain ? train : options_.count - train;
}

SampleShape GeneratedImages::shape() const {
  return {
      .inputs = {3, options_.size, options_.size}, .dtype = c10::ScalarType::Float, .targets = {}};
}

Status GeneratedImages::read(Part part, int64_t index, layers::Batch& batch, int64_t row) const {
  HANJI_RETURN_IF_ERROR(check_index(part, index));
  const int64_t sample = part == Part::kTrain ? index : count(Part::kTrain) + index;
  draw(sample, batch.inputs.mutable_data_ptr<float>() + row * 3 * options_.size * options_.size);
  batch.targets.mutable_data_ptr<int64_t>()[row] = sample % options_.classes;
  return {};
}

void GeneratedImages::draw(int64_t sample, float* out) const {
  const uint64_t key = base::mix(base::mix(options_.seed, kImages), static_cast<uint64_t>(sample));
  const int64_t size = options_.size;
  const Scene scene = scene_of(key, static_cast<float>(size));
  const int64_t label = sample % options_.classes;
  const auto shapes = static_cast<int64_t>(kShapes.size());
  const int64_t hues = (options_.classes + shapes - 1) / shapes;
  const Covers covers = kShapes[static_cast<size_t>(label % shapes)];
  const Colour colour = colour_of(static_cast<float>(label / shapes) / static_cast<float>(hues));
  for (int64_t row = 0; row < size; ++row) {
    for (int64_t column = 0; column < size; ++column) {
      const bool inside = covers((static_cast<float>(column) + 0.5F - scene.x) / scene.radius,
                                 (static_cast<float>(row) + 0.5F - scene.y) / scene.radius);
      for (int64_t channel = 0; channel < 3; ++channel) {
        out[(channel * size + row) * size + column] =
            inside ? scene.brightness * (2 * colour[static_cast<size_t>(channel)] - 1)
                   : scene.background;
      }
    }
  }
  add_noise(key, scene.noise, {out, static_cast<size_t>(3 * size * size)});
}

uint64_t GeneratedImages::checksum() const {
  const std::array<uint64_t, 4> all = {options_.seed, static_cast<uint64_t>(options_.size),
                                       static_cast<uint64_t>(options_.classes),
                                       static_cast<uint64_t>(options_.count)};
  return base::xxh3(std::as_bytes(std::span(all)));
}

}  // namespace hanji::data
