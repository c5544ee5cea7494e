#include "hanji/data/contact_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "hanji/base/json.h"
#include "hanji/data/batch.h"
#include "hanji/data/beton_images.h"
#include "hanji/data/internal/canvas.h"

namespace hanji::data {
namespace {

using internal::Canvas;
using internal::RgbImage;

constexpr int64_t kGap = 4;  // pixels between cells
constexpr int64_t kMaxSheetPixels = int64_t{1} << 28;
constexpr size_t kMaxLetters = 40;  // that a cell is widened for

/// Cells of one size with a line of text below each.
class Grid {
 public:
  /// `side` of an image; a cell is as wide as that and as a text of `letters`.
  static Result<Grid> create(int64_t count, int64_t columns, int64_t side, int64_t letters) {
    constexpr int64_t kMax = 1 << 14;
    const bool is_sane =
        count >= 1 && columns >= 1 && side >= 1 && count <= kMax && columns <= kMax && side <= kMax;
    const int64_t rows = is_sane ? (count + columns - 1) / columns : 0;
    const int64_t cell = std::max(side, letters * Canvas::kGlyphWidth);
    const int64_t width = columns * (cell + kGap) + kGap;
    const int64_t height = rows * (side + Canvas::kGlyphHeight + 2 * kGap) + kGap;
    if (!is_sane || height > kMaxSheetPixels / width) {
      return base::invalid_argument(
          fmt::format("a sheet of {} cells of {} pixels a side in {} columns; take 1 or more of "
                      "each, and at most {} pixels together",
                      count, side, columns, kMaxSheetPixels));
    }
    return Grid(columns, cell, side, Canvas(width, height));
  }

  /// In the middle of its cell.
  void place(int64_t number, const RgbImage& image, std::string_view text) {
    const int64_t x = kGap + number % columns_ * (width_ + kGap);
    const int64_t y = kGap + number / columns_ * (side_ + Canvas::kGlyphHeight + 2 * kGap);
    canvas_.draw(image, x + (width_ - image.width) / 2, y + (side_ - image.height) / 2);
    canvas_.write(text, x, y + side_ + kGap / 2, width_);
  }
  Result<std::string> png() const { return canvas_.png(); }

 private:
  Grid(int64_t columns, int64_t width, int64_t side, Canvas canvas)
      : columns_(columns), width_(width), side_(side), canvas_(std::move(canvas)) {}

  int64_t columns_;
  int64_t width_;  // of a cell
  int64_t side_;
  Canvas canvas_;
};

/// The images of a file, made small, and their names.
class Thumbnails {
 public:
  static Result<Thumbnails> open(const std::filesystem::path& path) {
    HANJI_ASSIGN_OR_RETURN(BetonFile file, BetonFile::open(path));
    Thumbnails all(std::move(file));
    const auto& fields = all.file_.fields();
    const auto first = [&](BetonType type) {
      return std::ranges::find(fields, type, &BetonField::type) - fields.begin();
    };
    all.image_ = static_cast<size_t>(first(BetonType::kRgbImage));
    all.label_ = static_cast<size_t>(first(BetonType::kInt));
    if (all.image_ < fields.size()) return all;
    return base::unsupported(path.native() +
                             ": no rgb_image field to show; `hanji data info` lists the fields");
  }

  int64_t count() const { return static_cast<int64_t>(file_.num_samples()); }

  Status read(int64_t sample, int64_t side, RgbImage& out) {
    HANJI_ASSIGN_OR_RETURN(const BetonValue image,
                           file_.read(static_cast<uint64_t>(sample), image_));
    const Status status = tools_->read(image, whole_);
    if (!status.ok()) return status.at(fmt::format("sample {}", sample));
    tools_->resize(whole_, internal::fit_within({image.width, image.height}, side), out);
    return {};
  }

  /// "17 cat", "17 3", or "17" without classes.
  std::string name(int64_t sample) const {
    std::string text = std::to_string(sample);
    if (label_ >= file_.fields().size()) return text;
    const auto label = file_.read(static_cast<uint64_t>(sample), label_);
    if (!label.ok()) return text;
    const auto number = static_cast<size_t>(label->integer);
    return text + " " +
           (number < classes_.size() ? classes_[number] : std::to_string(label->integer));
  }

 private:
  explicit Thumbnails(BetonFile file) : file_(std::move(file)) {
    const auto json = base::parse_json(file_.provenance());
    if (!json.ok() || !json->is_object() || !json->contains("classes")) return;
    const base::Json& classes = (*json)["classes"];
    if (!classes.is_array()) return;
    for (const auto& one : classes)
      classes_.push_back(one.is_string() ? one.get<std::string>() : "");
  }

  BetonFile file_;
  size_t image_ = 0;
  size_t label_ = 0;
  std::vector<std::string> classes_;
  std::unique_ptr<internal::WholeImages> tools_ = std::make_unique<internal::WholeImages>();
  RgbImage whole_;
};

Status go_on(const SheetOptions& options, int64_t done, int64_t total) {
  if (!options.proceed || options.proceed(done, total)) return {};
  return base::cancelled("interrupted");
}

/// Numbers of `count` of `all`, spread evenly.
int64_t spread(int64_t number, int64_t count, int64_t all) {
  return static_cast<int64_t>(static_cast<__int128>(number) * all / count);
}

/// From planes of normalised numbers, `size` a side, to rows of RGB: each pixel becomes a square of
/// `times` a side.
RgbImage undo_normalise(const float* planes, const plan::ImageStages& stages, int64_t size,
                        int64_t times) {
  RgbImage out{size * times, size * times, {}};
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t at = 0; at < 3 * out.width; ++at) {
      const int64_t c = at % 3;
      const float value = planes[(c * size + y / times) * size + at / 3 / times];
      const double level = 255 * (value * stages.deviation[c] + stages.mean[c]);
      out.rgb.push_back(static_cast<uint8_t>(std::clamp(std::round(level), 0.0, 255.0)));
    }
  }
  return out;
}

}  // namespace

Result<std::string> contact_sheet(const std::filesystem::path& path, const SheetOptions& options) {
  HANJI_ASSIGN_OR_RETURN(Thumbnails images, Thumbnails::open(path));
  const int64_t count = std::min(options.count, images.count());
  HANJI_ASSIGN_OR_RETURN(Grid grid, Grid::create(count, options.columns, options.cell, 0));
  RgbImage small;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = spread(i, count, images.count());
    HANJI_RETURN_IF_ERROR(images.read(sample, options.cell, small));
    grid.place(i, small, images.name(sample));
    HANJI_RETURN_IF_ERROR(go_on(options, i + 1, count));
  }
  return grid.png();
}

Result<std::string> augmented_sheet(const std::filesystem::path& path, const SheetSamples& samples,
                                    const SheetOptions& options) {
  HANJI_ASSIGN_OR_RETURN(Thumbnails images, Thumbnails::open(path));
  HANJI_ASSIGN_OR_RETURN(BetonFile file, BetonFile::open(path));
  HANJI_ASSIGN_OR_RETURN(const BetonImages source,
                         BetonImages::create(std::move(file), {.stages = samples.stages,
                                                               .size = samples.size,
                                                               .seed = samples.seed,
                                                               .validation_fraction = 0}));
  const int64_t count = std::min(options.count, images.count());
  const int64_t side = std::max(options.cell, samples.size);
  const auto sample_of_row = [&](int64_t row) { return spread(row, count, images.count()); };
  const auto text_of = [](int64_t epoch) { return fmt::format("epoch {}", epoch); };
  size_t letters = text_of(options.columns).size();
  for (int64_t row = 0; row < count; ++row) {
    letters = std::max(letters, images.name(sample_of_row(row)).size());
  }
  const int64_t cells = count * std::clamp<int64_t>(options.columns, 0, int64_t{1} << 20);
  HANJI_ASSIGN_OR_RETURN(Grid grid,
                         Grid::create(cells, options.columns, side,
                                      static_cast<int64_t>(std::min(letters, kMaxLetters))));
  layers::Batch batch;
  shape_batch(source.shape(), {0, 1}, batch);
  for (int64_t cell = 0; cell < cells; ++cell) {
    const int64_t sample = sample_of_row(cell / options.columns);
    const int64_t epoch = cell % options.columns - 1;
    if (epoch < 0) {
      RgbImage whole;
      HANJI_RETURN_IF_ERROR(images.read(sample, side, whole));
      grid.place(cell, whole, images.name(sample));
    } else {
      HANJI_RETURN_IF_ERROR(source.read_in_epoch(epoch, sample, batch, 0));
      const auto* planes = batch.inputs.const_data_ptr<float>();
      grid.place(cell, undo_normalise(planes, samples.stages, samples.size, side / samples.size),
                 text_of(epoch));
    }
    HANJI_RETURN_IF_ERROR(go_on(options, cell + 1, cells));
  }
  return grid.png();
}

}  // namespace hanji::data
