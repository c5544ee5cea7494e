#include "hanji/data/beton_generated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/data/batch.h"
#include "hanji/data/generated_images.h"

namespace hanji::data {
namespace {

constexpr int64_t kMaxPixels = 16384;  // of a side: an image lies in one page

/// From planes of floats to rows of RGB.
void quantize(const float* planes, std::span<std::byte> rows) {
  const size_t pixels = rows.size() / 3;
  for (size_t i = 0; i < rows.size(); ++i) {
    const float level = std::round(85 * (planes[i % 3 * pixels + i / 3] + 1.5F));
    rows[i] = static_cast<std::byte>(std::clamp(level, 0.0F, 255.0F));
  }
}

Status read_generated(const GeneratedImages& images, uint64_t i, BetonSample& out) {
  const auto side = static_cast<uint16_t>(images.options().size);
  layers::Batch batch;
  shape_batch(images.shape(), {0, 1}, batch);
  HANJI_RETURN_IF_ERROR(images.read(Part::kTrain, static_cast<int64_t>(i), batch, 0));
  out.bytes.resize(size_t{3} * side * side);
  quantize(batch.inputs.const_data_ptr<float>(), out.bytes);
  out.values = {{.width = side, .height = side, .bytes = out.bytes},
                {.integer = batch.targets.const_data_ptr<int64_t>()[0]}};
  return {};
}

}  // namespace

Result<BetonRecipe> generated_recipe(const GeneratedFileOptions& options) {
  constexpr int64_t kLeastPixels = 8;
  const bool fits = options.count >= 1 && options.classes >= 2 && options.size >= kLeastPixels &&
                    options.size <= kMaxPixels;
  if (!fits) {
    return base::invalid_argument(
        fmt::format("{} images of {} pixels a side in {} classes; take 1 image or more, {} to {} "
                    "pixels, and 2 classes or more",
                    options.count, options.size, options.classes, kLeastPixels, kMaxPixels));
  }
  HANJI_ASSIGN_OR_RETURN(const GeneratedImages images,
                         GeneratedImages::create({.seed = options.seed,
                                                  .size = options.size,
                                                  .classes = options.classes,
                                                  .count = options.count,
                                                  .validation_fraction = 0}));
  return BetonRecipe{
      .fields = {{"image", BetonType::kRgbImage}, {"label", BetonType::kInt}},
      .num_samples = static_cast<uint64_t>(options.count),
      .max_sample_bytes = static_cast<uint64_t>(3 * options.size * options.size),
      .provenance =
          fmt::format(R"({{"images":"generated","seed":{},"size":{},"classes":{},"count":{}}})",
                      options.seed, options.size, options.classes, options.count),
      .read = [images](uint64_t i, BetonSample& out) { return read_generated(images, i, out); }};
}

}  // namespace hanji::data
