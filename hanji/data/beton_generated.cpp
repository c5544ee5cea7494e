#include "hanji/data/beton_generated.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "hanji/data/batch.h"
#include "hanji/data/beton_writer.h"
#include "hanji/data/generated_images.h"

namespace hanji::data {
namespace {

constexpr int64_t kMaxPixels = 16384;  // of a side: an image lies in one page
constexpr uint64_t kUsualPageBytes = uint64_t{8} << 20;

/// From planes of floats to rows of RGB.
void quantize(const float* planes, std::span<std::byte> rows) {
  const size_t pixels = rows.size() / 3;
  for (size_t i = 0; i < rows.size(); ++i) {
    const float level = std::round(85 * (planes[i % 3 * pixels + i / 3] + 1.5F));
    rows[i] = static_cast<std::byte>(std::clamp(level, 0.0F, 255.0F));
  }
}

Status write_samples(const GeneratedImages& images, BetonWriter& writer) {
  const auto side = static_cast<uint16_t>(images.options().size);
  std::vector<std::byte> rows(size_t{3} * side * side);
  layers::Batch batch;
  shape_batch(images.shape(), {0, 1}, batch);
  for (int64_t i = 0; i < images.num_train(); ++i) {
    HANJI_RETURN_IF_ERROR(images.read(Part::kTrain, i, batch, 0));
    quantize(batch.inputs.const_data_ptr<float>(), rows);
    const BetonValue values[] = {{.width = side, .height = side, .bytes = rows},
                                 {.integer = batch.targets.const_data_ptr<int64_t>()[0]}};
    HANJI_RETURN_IF_ERROR(writer.append(values));
  }
  return writer.finish();
}

}  // namespace

Status write_generated_file(const std::filesystem::path& path,
                            const GeneratedFileOptions& options) {
  HANJI_ASSIGN_OR_RETURN(const GeneratedImages images,
                         GeneratedImages::create({.seed = options.seed,
                                                  .size = options.size,
                                                  .classes = options.classes,
                                                  .count = options.count,
                                                  .validation_fraction = 0}));
  std::error_code error;
  if (options.size > kMaxPixels || std::filesystem::exists(path, error)) {
    return base::invalid_argument(
        fmt::format("{}: a file that exists, or images of {} pixels a side (at most {}); name "
                    "another",
                    path.native(), options.size, kMaxPixels));
  }
  const auto image_bytes = static_cast<uint64_t>(3 * options.size * options.size);
  HANJI_ASSIGN_OR_RETURN(
      BetonWriter writer,
      BetonWriter::create(
          path, {{"image", BetonType::kRgbImage}, {"label", BetonType::kInt}},
          {.num_samples = static_cast<uint64_t>(options.count),
           .page_bytes = std::max(kUsualPageBytes, std::bit_ceil(image_bytes)),
           .provenance = fmt::format(
               R"({{"images":"generated","seed":{},"size":{},"classes":{},"count":{}}})",
               options.seed, options.size, options.classes, options.count)}));
  return write_samples(images, writer);
}

}  // namespace hanji::data
