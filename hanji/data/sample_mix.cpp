#include "hanji/data/internal/sample_mix.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hanji/base/random.h"
#include "hanji/data/internal/image_kernels.h"

namespace hanji::data::internal {
namespace {

using base::Philox;

// Counters of the draws, apart from those of a view; attempts at a weight follow.
enum MixDraw : uint64_t { kWhich = 128, kPlaceOfBox, kFirstWeight };
// At alpha = 4 one of 70 pairs of words is a weight.
constexpr uint64_t kMaxWeights = 1 << 12;
constexpr double kWeightSteps = 1 << 16;

/// From Beta(alpha, alpha), in steps of 2^-16, which hide how a library rounds pow().
/// Source  Johnk, Metrika 8, 1964.
double draw_weight(double alpha, uint64_t key) {
  for (uint64_t i = 0; i < kMaxWeights; ++i) {
    const auto words = Philox::draw(key, 0, kFirstWeight + i);
    const double x = std::pow(base::uniform(words[0]), 1 / alpha);
    const double y = std::pow(base::uniform(words[1]), 1 / alpha);
    if (x + y <= 0 || x + y > 1) continue;
    return std::round(x / (x + y) * kWeightSteps) / kWeightSteps;
  }
  return 0.5;
}

/// A box of `area` of the sample, around a point anywhere in it, clipped.
PixelBox draw_box(double area, int64_t size, uint64_t key) {
  const auto words = Philox::draw(key, 0, kPlaceOfBox);
  const auto side = static_cast<int64_t>(static_cast<double>(size) * std::sqrt(area));
  const auto run = [&](uint32_t word) {
    const auto center = static_cast<int64_t>(base::uniform(word) * static_cast<double>(size));
    const int64_t begin = std::clamp<int64_t>(center - side / 2, 0, size);
    return std::pair(begin, std::clamp<int64_t>(center - side / 2 + side, 0, size) - begin);
  };
  const auto [x, width] = run(words[0]);
  const auto [y, height] = run(words[1]);
  return {x, y, width, height};
}

float weight_at(const SampleMix& mix, int64_t x, int64_t y) {
  const PixelBox& box = mix.box;
  const bool is_inside =
      x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height;
  return is_inside ? 0 : mix.keep;
}

}  // namespace

SampleMix draw_mix(const plan::ImageStages& stages, int64_t size, uint64_t key) {
  const double which = base::uniform(Philox::draw(key, 0, kWhich)[0]);
  if (which < stages.mixup.probability) {
    const auto weight = static_cast<float>(draw_weight(stages.mixup.alpha, key));
    return {.keep = weight, .label = weight};
  }
  if (which >= stages.mixup.probability + stages.cutmix.probability) return {};
  const double weight = draw_weight(stages.cutmix.alpha, key);
  const PixelBox box = draw_box(1 - weight, size, key);
  if (box.width == 0 || box.height == 0) return {};
  const double part =
      static_cast<double>(box.width * box.height) / static_cast<double>(size * size);
  return {.box = box, .label = static_cast<float>(1 - part)};
}

void mix_samples(const SampleMix& of_a, const SampleMix& of_b, int64_t size, float* a, float* b) {
  if (of_a.changes_nothing() && of_b.changes_nothing()) return;
  // Between the edges of the boxes both weights are constant.
  std::array<int64_t, 6> edges = {
      0, of_a.box.x, of_a.box.x + of_a.box.width, of_b.box.x, of_b.box.x + of_b.box.width, size};
  std::ranges::sort(edges);
  for (int64_t row = 0; row < 3 * size; ++row) {
    for (size_t i = 0; i + 1 < edges.size(); ++i) {
      const int64_t x = edges[i];
      mix_rows(weight_at(of_a, x, row % size), weight_at(of_b, x, row % size), edges[i + 1] - x,
               a + row * size + x, b + row * size + x);
    }
  }
}

}  // namespace hanji::data::internal
