#include "hanji/data/beton_convert.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/json.h"
#include "hanji/base/random.h"
#include "hanji/data/internal/beton_layout.h"
#include "hanji/data/internal/jpeg_rows.h"
#include "hanji/data/internal/jpeg_writer.h"
#include "hanji/data/internal/pool.h"
#include "hanji/data/internal/whole_image.h"

namespace hanji::data {
namespace internal {

/// What one thread converts with.
struct ConvertTools {
  WholeImages images;
  RgbImage whole;
  RgbImage small;
};

class Conversion {
 public:
  Conversion(std::shared_ptr<const BetonFile> file, const ConvertOptions& options)
      : file_(std::move(file)), options_(options) {}

  Status read(uint64_t sample, BetonSample& out);
  /// No sample has more bytes in the heap.
  uint64_t max_sample_bytes() const;

 private:
  bool is_jpeg_after(uint64_t sample, const BetonValue& image, ImageSize size) const;
  Status convert(uint64_t sample, ConvertTools& tools, BetonValue& image,
                 std::vector<std::byte>& bytes) const;
  uint64_t max_image_bytes(uint64_t sample, const BetonValue& image) const;
  ImageSize size_after(const BetonValue& image) const {
    const ImageSize size{image.width, image.height};
    return options_.max_resolution == 0 ? size : fit_within(size, options_.max_resolution);
  }

  std::shared_ptr<const BetonFile> file_;
  ConvertOptions options_;
  Pool<ConvertTools> tools_;
};

bool Conversion::is_jpeg_after(uint64_t sample, const BetonValue& image, ImageSize size) const {
  switch (options_.images) {
    case ImageStorage::kKeep: return image.mode == BetonImageMode::kJpeg;
    case ImageStorage::kRaw: return false;
    case ImageStorage::kJpeg: return true;
    case ImageStorage::kProportion: {
      const auto word = static_cast<uint32_t>(base::mix(options_.seed, sample));
      return base::uniform(word) < options_.jpeg_share;
    }
    case ImageStorage::kSmart: break;
  }
  return static_cast<uint64_t>(3 * size.width * size.height) > options_.smart_bytes;
}

/// Writes to `bytes` what the image's are to be; leaves both as they are if nothing changes.
Status Conversion::convert(uint64_t sample, ConvertTools& tools, BetonValue& image,
                           std::vector<std::byte>& bytes) const {
  const ImageSize size = size_after(image);
  const bool is_jpeg = image.mode == BetonImageMode::kJpeg;
  const bool becomes_jpeg = is_jpeg_after(sample, image, size);
  const bool shrinks = size.width != image.width || size.height != image.height;
  const auto keep = [&bytes](std::span<const std::byte> stored) {
    bytes.insert(bytes.end(), stored.begin(), stored.end());
    return Status();
  };
  if (is_jpeg == becomes_jpeg && !shrinks && !(is_jpeg && options_.quality)) {
    if (!is_jpeg || !options_.row_index) return {};
    HANJI_ASSIGN_OR_RETURN(const std::string stream, add_jpeg_rows(image.bytes));
    return keep(std::as_bytes(std::span(stream)));
  }
  HANJI_RETURN_IF_ERROR(tools.images.read(image, tools.whole));
  if (shrinks) tools.images.resize(tools.whole, size, tools.small);
  const RgbImage& made = shrinks ? tools.small : tools.whole;
  image.width = static_cast<uint16_t>(size.width);
  image.height = static_cast<uint16_t>(size.height);
  image.mode = becomes_jpeg ? BetonImageMode::kJpeg : BetonImageMode::kRaw;
  if (!becomes_jpeg) return keep(std::as_bytes(std::span(made.rgb)));
  constexpr int kUsualQuality = 90;
  HANJI_ASSIGN_OR_RETURN(std::string stream,
                         encode_jpeg_image(made.rgb, image.width, image.height,
                                           options_.quality.value_or(kUsualQuality)));
  if (options_.row_index) {
    HANJI_ASSIGN_OR_RETURN(stream, add_jpeg_rows(std::as_bytes(std::span(stream))));
  }
  return keep(std::as_bytes(std::span(stream)));
}

Status Conversion::read(uint64_t sample, BetonSample& out) {
  const auto& fields = file_->fields();
  out.values.assign(fields.size(), {});
  out.bytes.clear();
  auto tools = tools_.take();
  std::vector<std::pair<size_t, size_t>> made(fields.size());  // begin and end in out.bytes
  for (size_t f = 0; f < fields.size(); ++f) {
    HANJI_ASSIGN_OR_RETURN(out.values[f], file_->read(sample, f));
    made[f].first = out.bytes.size();
    if (fields[f].type == BetonType::kRgbImage) {
      const Status status = convert(sample, *tools, out.values[f], out.bytes);
      if (!status.ok()) return status.at(fmt::format("field '{}'", fields[f].name));
    }
    made[f].second = out.bytes.size();
  }
  for (size_t f = 0; f < fields.size(); ++f) {
    const auto [begin, end] = made[f];
    if (end > begin) out.values[f].bytes = std::span(out.bytes).subspan(begin, end - begin);
  }
  tools_.give_back(std::move(tools));
  return {};
}

/// A JPEG of noise may be larger than its pixels; twice that and its tables are never reached.
uint64_t Conversion::max_image_bytes(uint64_t sample, const BetonValue& image) const {
  constexpr uint64_t kTables = 4096, kIndex = uint64_t{1} << 17;
  const ImageSize size = size_after(image);
  const auto raw = static_cast<uint64_t>(3 * size.width * size.height);
  const uint64_t made = is_jpeg_after(sample, image, size) ? 2 * raw + kTables : raw;
  const bool keeps =
      options_.images == ImageStorage::kKeep && !options_.quality && options_.max_resolution == 0;
  const uint64_t kept = options_.row_index ? 2 * image.bytes.size() + kIndex : image.bytes.size();
  return keeps ? kept : std::max<uint64_t>(made, kept);
}

/// A value that cannot be read has no bytes here; read() is the error.
uint64_t Conversion::max_sample_bytes() const {
  const auto& fields = file_->fields();
  uint64_t most = 0;
  for (uint64_t sample = 0; sample < file_->num_samples(); ++sample) {
    uint64_t bytes = 0;
    for (size_t f = 0; f < fields.size(); ++f) {
      if (!is_in_heap(fields[f].type)) continue;
      const auto value = file_->read(sample, f);
      if (!value.ok()) continue;
      const bool is_image = fields[f].type == BetonType::kRgbImage;
      bytes += is_image ? max_image_bytes(sample, *value) : value->bytes.size() + 1;
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace internal

namespace {

std::string_view storage_name(ImageStorage storage) {
  switch (storage) {
    case ImageStorage::kKeep: return "keep";
    case ImageStorage::kRaw: return "raw";
    case ImageStorage::kJpeg: return "jpg";
    case ImageStorage::kProportion: return "proportion";
    case ImageStorage::kSmart: return "smart";
  }
  return "";
}

Status check_convert_options(const BetonFile& file, const ConvertOptions& options) {
  const bool has_images =
      std::ranges::count(file.fields(), BetonType::kRgbImage, &BetonField::type) > 0;
  const bool changes = options.images != ImageStorage::kKeep || options.quality ||
                       options.max_resolution != 0 || options.row_index;
  if (changes && !has_images) {
    return base::invalid_argument("the file has no rgb_image field to convert");
  }
  const int quality = options.quality.value_or(1);
  if (quality < 1 || quality > 100) {
    return base::invalid_argument(
        fmt::format("a quality of {} of JPEGs; take 1 to 100", *options.quality));
  }
  if (options.max_resolution < 0) {
    return base::invalid_argument(
        fmt::format("a longer side of {} pixels at most; take 1 or more, or 0 for any",
                    options.max_resolution));
  }
  if (!(options.jpeg_share >= 0 && options.jpeg_share <= 1)) {
    return base::invalid_argument(
        fmt::format("a share of {} of JPEGs; take 0 to 1", options.jpeg_share));
  }
  return {};
}

/// The file's own, with what was converted.
std::string provenance_after(const BetonFile& file, const ConvertOptions& options) {
  const auto before = base::parse_json(file.provenance());
  base::Json json = before.ok() && before->is_object() ? *before : base::Json::object();
  base::Json made = {{"images", storage_name(options.images)}};
  if (options.quality) made["quality"] = *options.quality;
  if (options.row_index) made["row_index"] = true;
  if (options.max_resolution > 0) made["max_resolution"] = options.max_resolution;
  if (options.images == ImageStorage::kProportion) {
    made["jpeg_share"] = options.jpeg_share;
    made["seed"] = options.seed;
  }
  if (options.images == ImageStorage::kSmart) made["smart_bytes"] = options.smart_bytes;
  json["converted"] = made;
  return base::dump(json);
}

}  // namespace

Result<BetonRecipe> converted_recipe(const std::filesystem::path& path,
                                     const ConvertOptions& options) {
  HANJI_ASSIGN_OR_RETURN(BetonFile opened, BetonFile::open(path));
  const auto file = std::make_shared<const BetonFile>(std::move(opened));
  const Status status = check_convert_options(*file, options);
  if (!status.ok()) return status.at(path.native());
  const auto conversion = std::make_shared<internal::Conversion>(file, options);
  return BetonRecipe{
      .fields = file->fields(),
      .num_samples = file->num_samples(),
      .max_sample_bytes = conversion->max_sample_bytes(),
      .provenance = provenance_after(*file, options),
      .key = key_of_file(path),
      .read = [conversion](uint64_t i, BetonSample& out) { return conversion->read(i, out); }};
}

}  // namespace hanji::data
