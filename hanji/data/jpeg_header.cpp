#include "hanji/data/internal/jpeg_header.h"

#include <fmt/format.h>

#include <string_view>

namespace hanji::data::internal {
namespace {

constexpr uint8_t kStart = 0xD8;
constexpr uint8_t kEnd = 0xD9;
constexpr uint8_t kScan = 0xDA;

uint8_t byte_at(std::span<const std::byte> bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

uint16_t big_endian(std::span<const std::byte> bytes, size_t at) {
  return static_cast<uint16_t>(byte_at(bytes, at) << 8 | byte_at(bytes, at + 1));
}

/// SOF0 to SOF15 but DHT, JPG and DAC, which lie among them.
bool is_frame(uint8_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/// TEM and restart markers have no length.
bool is_alone(uint8_t marker) { return marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7); }

/// Baseline, extended and progressive coding, by Huffman's or arithmetic codes.
bool is_decoded(uint8_t marker) { return marker <= 0xC2 || marker == 0xC9 || marker == 0xCA; }

struct ImageMagic {
  size_t at;
  std::string_view bytes;
  std::string_view name;
};

/// What files of images that are no JPEGs begin with.
constexpr ImageMagic kOtherImages[] = {{0, "\x89PNG", "PNG"},
                                       {0, "GIF8", "GIF"},
                                       {0, "BM", "BMP"},
                                       {0, std::string_view("II*\0", 4), "TIFF"},
                                       {0, std::string_view("MM\0*", 4), "TIFF"},
                                       {8, "WEBP", "WebP"},
                                       {4, "ftyp", "HEIF or AVIF"},
                                       {4, "jP  ", "JPEG 2000"},
                                       {4, "JXL ", "JPEG XL"}};

Status no_jpeg(std::span<const std::byte> stream) {
  const std::string_view text(reinterpret_cast<const char*>(stream.data()), stream.size());
  for (const ImageMagic& one : kOtherImages) {
    if (text.size() < one.at || !text.substr(one.at).starts_with(one.bytes)) continue;
    return base::corrupt(
        fmt::format("no JPEG but an image of the format {}; convert it", one.name));
  }
  return base::corrupt("no JPEG: it does not begin with the bytes FF D8; convert it");
}

/// `frame` begins with its length.
Result<JpegSize> parse_frame(uint8_t marker, std::span<const std::byte> frame) {
  if (frame.size() < 8) return base::corrupt("its frame header is cut; copy the file again");
  const uint8_t bits = byte_at(frame, 2);
  const uint8_t components = byte_at(frame, 7);
  const bool is_known = components == 1 || components == 3 || components == 4;
  if (!is_decoded(marker) || bits != 8 || !is_known) {
    return base::unsupported(
        fmt::format("a JPEG of kind SOF{} with {} components of {} bits; convert it to a baseline "
                    "or progressive one of 8 bits, gray or in colour",
                    marker - 0xC0, components, bits));
  }
  const JpegSize size{.width = big_endian(frame, 5), .height = big_endian(frame, 3)};
  if (size.width > 0 && size.height > 0) return size;
  return base::corrupt(fmt::format("a JPEG of {} x {} pixels; make it again, or leave it out",
                                   size.width, size.height));
}

}  // namespace

Result<JpegSize> parse_jpeg_size(std::span<const std::byte> stream) {
  if (stream.size() < 2 || byte_at(stream, 0) != 0xFF || byte_at(stream, 1) != kStart) {
    return no_jpeg(stream);
  }
  size_t at = 2;
  while (stream.size() - at >= 4) {
    if (byte_at(stream, at) != 0xFF) {
      return base::corrupt(
          fmt::format("byte {} of the JPEG is {:02X}, not a marker; copy the file "
                      "again",
                      at, byte_at(stream, at)));
    }
    const uint8_t marker = byte_at(stream, at + 1);
    if (marker == 0xFF) {  // padding before a marker
      ++at;
      continue;
    }
    at += 2;
    if (is_alone(marker)) continue;
    if (marker == kEnd || marker == kScan) break;
    const size_t length = big_endian(stream, at);
    if (length < 2 || length > stream.size() - at) {
      return base::corrupt(
          fmt::format("the segment at byte {} of the JPEG has {} bytes of {}; "
                      "copy the file again",
                      at, length, stream.size() - at));
    }
    if (is_frame(marker)) return parse_frame(marker, stream.subspan(at, length));
    at += length;
  }
  return base::corrupt(
      fmt::format("no frame header in the JPEG before byte {}; copy the file again", at));
}

}  // namespace hanji::data::internal
