#include "hanji/data/internal/encoded_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "hanji/base/file.h"
#include "hanji/data/internal/jpeg_header.h"
#include "hanji/data/internal/png_reader.h"

namespace hanji::data::internal {
namespace {

bool is_named_as_jpeg(const std::filesystem::path& path) {
  std::string extension = path.extension().native();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  return extension == ".jpg" || extension == ".jpeg";
}

}  // namespace

Result<BetonValue> store_image(std::span<const std::byte> stream, std::vector<std::byte>& rows) {
  if (is_png(stream)) {
    HANJI_ASSIGN_OR_RETURN(const PngSize size, parse_png_size(stream));
    HANJI_ASSIGN_OR_RETURN(const std::vector<std::byte> decoded, decode_png(stream));
    rows.insert(rows.end(), decoded.begin(), decoded.end());
    return BetonValue{.mode = BetonImageMode::kRaw, .width = size.width, .height = size.height};
  }
  HANJI_ASSIGN_OR_RETURN(const JpegSize size, parse_jpeg_size(stream));
  return BetonValue{
      .mode = BetonImageMode::kJpeg, .width = size.width, .height = size.height, .bytes = stream};
}

uint64_t stored_bytes(std::span<const std::byte> stream) {
  if (!is_png(stream)) return stream.size();
  const auto size = parse_png_size(stream);
  return size.ok() ? size->rgb_bytes() : 0;  // what is wrong is said when it is read
}

Result<BetonValue> store_image_file(const std::filesystem::path& path, uint64_t max_bytes,
                                    std::vector<std::byte>& out) {
  HANJI_ASSIGN_OR_RETURN(const base::MappedFile file, base::MappedFile::open(path));
  const uint64_t bytes = stored_bytes(file.bytes());
  if (bytes > max_bytes) {
    return base::unsupported(
        fmt::format("{}: a PNG of {} bytes of RGB under the name of a JPEG; name "
                    "it .png",
                    path.native(), bytes));
  }
  auto value = store_image(file.bytes(), out);
  if (!value.ok()) return value.status().at(path.native());
  out.insert(out.end(), value->bytes.begin(), value->bytes.end());
  value->bytes = {};
  return value;
}

uint64_t stored_bytes_of_file(const std::filesystem::path& path) {
  if (is_named_as_jpeg(path)) {
    std::error_code error;
    const uintmax_t bytes = std::filesystem::file_size(path, error);
    return error ? 0 : bytes;
  }
  const auto file = base::MappedFile::open(path);
  return file.ok() ? stored_bytes(file->bytes()) : 0;
}

}  // namespace hanji::data::internal
