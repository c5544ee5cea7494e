#include "hanji/data/internal/jpeg_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "hanji/data/internal/jpeg_errors.h"
#include "hanji/data/internal/little_endian.h"

namespace hanji::data::internal {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kName("hanji-rows\0\1", 12);  // with the version
constexpr uint8_t kSegment = 0xE9;                       // APP9
constexpr uint8_t kFirstRestart = 0xD0;
constexpr size_t kHead = 2 + 2 + 2;  // start of image, marker, length
constexpr size_t kMaxSegment = 65535;
constexpr int64_t kMaxCoefficients = int64_t{1} << 29;  // of 2 bytes

uint8_t byte_of(Bytes bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

size_t two_bytes(Bytes bytes, size_t at) {
  return static_cast<size_t>(byte_of(bytes, at) << 8 | byte_of(bytes, at + 1));
}

/// Of a baseline frame header; 0 if it is not one.
int64_t row_height_of(Bytes frame) {
  if (frame.size() < 8 || frame.size() < 8 + 3 * size_t{byte_of(frame, 7)}) return 0;
  const int components = byte_of(frame, 7);
  int tallest = 1;
  for (int i = 0; i < components; ++i) {
    tallest = std::max(tallest, byte_of(frame, 8 + 3 * static_cast<size_t>(i) + 1) & 15);
  }
  return components == 1 ? 8 : 8 * tallest;  // a scan of one component has rows of one block
}

/// Fills what the headers from `at` on say. False: no baseline JPEG that ends in a scan.
bool read_headers(Bytes stream, size_t at, JpegRows& rows) {
  constexpr uint8_t kBaseline = 0xC0, kExtended = 0xC1, kScan = 0xDA;
  int components = 0;
  while (at + 4 <= stream.size() && byte_of(stream, at) == 0xFF) {
    const uint8_t marker = byte_of(stream, at + 1);
    const size_t length = two_bytes(stream, at + 2);
    if (length < 2 || length > stream.size() - at - 2) return false;
    const bool is_frame = marker == kBaseline || marker == kExtended;
    if (is_frame) {
      rows.row_height = row_height_of(stream.subspan(at + 2, length));
      components = rows.row_height > 0 ? byte_of(stream, at + 9) : 0;
      rows.height_at = at + 5;
      rows.height = rows.row_height > 0 ? static_cast<int64_t>(two_bytes(stream, at + 5)) : 0;
    }
    at += 2 + length;
    rows.scan_begin = at;
    if (marker == kScan) {
      return rows.height > 0 && length > 2 && byte_of(stream, at - length + 2) == components;
    }
    // Another frame, or arithmetic codes.
    if (marker >= 0xC2 && marker <= 0xCF && marker != 0xC4) return false;
  }
  return false;
}

bool has_markers(Bytes stream, const JpegRows& rows) {
  if (rows.count() != (rows.height + rows.row_height - 1) / rows.row_height) return false;
  size_t before = rows.begin(0);
  if (before != rows.scan_begin) return false;
  for (int64_t i = 1; i < rows.count(); ++i) {
    const size_t begin = rows.begin(i);
    if (begin < before + 2 || begin >= stream.size()) return false;
    const bool is_marker = byte_of(stream, begin - 2) == 0xFF &&
                           byte_of(stream, begin - 1) == kFirstRestart + (i - 1) % 8;
    if (!is_marker) return false;
    before = begin;
  }
  return true;
}

void append(std::vector<std::byte>& part, Bytes bytes) {
  part.insert(part.end(), bytes.begin(), bytes.end());
}

/// A stream with a warning is not copied.
void on_warning(j_common_ptr info, int level) {
  if (level < 0) JpegWorkErrors::on_error(info);
}

/// Frees what libjpeg has allocated, however the function ends.
struct Transcoder {
  JpegWorkErrors errors;
  jpeg_decompress_struct decoder = {};
  jpeg_compress_struct encoder = {};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type

  Transcoder() {
    decoder.err = encoder.err = errors.begin();
    errors.base.emit_message = on_warning;
  }
  Transcoder(const Transcoder&) = delete;
  Transcoder& operator=(const Transcoder&) = delete;
  ~Transcoder() {
    jpeg_destroy_compress(&encoder);
    jpeg_destroy_decompress(&decoder);
    std::free(bytes);  // NOLINT: allocated by libjpeg
  }

  /// Behind a place to jump to. False: the stream is not to be changed.
  bool read(Bytes stream) {
    jpeg_create_decompress(&decoder);
    jpeg_create_compress(&encoder);
    jpeg_mem_src(&decoder, reinterpret_cast<const unsigned char*>(stream.data()), stream.size());
    jpeg_save_markers(&decoder, JPEG_COM, 0xFFFF);
    for (int i = 0; i < 16; ++i) jpeg_save_markers(&decoder, JPEG_APP0 + i, 0xFFFF);
    jpeg_read_header(&decoder, TRUE);
    const int64_t pixels = int64_t{decoder.image_width} * decoder.image_height;
    return (decoder.num_components == 1 || decoder.num_components == 3) &&
           3 * pixels <= kMaxCoefficients;
  }

  bool is_written_by_encoder(const jpeg_marker_struct& marker) const {
    const std::string_view text(reinterpret_cast<const char*>(marker.data), marker.data_length);
    return (encoder.write_JFIF_header && marker.marker == JPEG_APP0 && text.starts_with("JFIF")) ||
           (encoder.write_Adobe_marker && marker.marker == JPEG_APP0 + 14 &&
            text.starts_with("Adobe")) ||
           (marker.marker == kSegment && text.starts_with(kName));
  }

  /// Behind a place to jump to.
  void write() {
    jvirt_barray_ptr* coefficients = jpeg_read_coefficients(&decoder);
    jpeg_copy_critical_parameters(&decoder, &encoder);
    encoder.optimize_coding = TRUE;
    encoder.restart_in_rows = 1;
    jpeg_mem_dest(&encoder, &bytes, &size);
    jpeg_write_coefficients(&encoder, coefficients);
    for (const jpeg_marker_struct* one = decoder.marker_list; one != nullptr; one = one->next) {
      if (is_written_by_encoder(*one)) continue;
      jpeg_write_marker(&encoder, one->marker, one->data, one->data_length);
    }
    jpeg_finish_compress(&encoder);
    jpeg_finish_decompress(&decoder);
  }
};

/// The beginnings of the rows of a stream that has a restart marker between any two; the last 0xFF 0xD9 ends it.
std::string row_begins(Bytes stream, size_t scan_begin) {
  std::string begins;
  const auto add = [&](size_t at) {
    const auto begin = static_cast<uint32_t>(at - scan_begin);
    begins.append(reinterpret_cast<const char*>(&begin), sizeof(begin));
  };
  add(scan_begin);
  for (size_t at = scan_begin; at + 1 < stream.size(); ++at) {
    const bool is_restart =
        byte_of(stream, at) == 0xFF && (byte_of(stream, at + 1) & 0xF8) == kFirstRestart;
    if (is_restart) add(at + 2);
  }
  return begins;
}

}  // namespace

size_t JpegRows::begin(int64_t i) const {
  return scan_begin + load<uint32_t>(begins, static_cast<size_t>(i) * sizeof(uint32_t));
}

std::optional<JpegRows> find_jpeg_rows(Bytes stream) {
  if (stream.size() < kHead + kName.size() || byte_of(stream, 3) != kSegment) return std::nullopt;
  const size_t length = two_bytes(stream, 4);
  const std::string_view name(reinterpret_cast<const char*>(stream.data()) + kHead, kName.size());
  if (name != kName || length < 2 + kName.size() || length > stream.size() - 4) return std::nullopt;
  JpegRows rows;
  rows.begins = stream.subspan(kHead + kName.size(), length - 2 - kName.size());
  const bool fits = !rows.begins.empty() && rows.begins.size() % sizeof(uint32_t) == 0;
  if (!fits || !read_headers(stream, 4 + length, rows) || !has_markers(stream, rows)) {
    return std::nullopt;
  }
  return rows;
}

void cut_jpeg_rows(Bytes stream, const JpegRows& rows, int64_t first, int64_t end,
                   std::vector<std::byte>& part) {
  const size_t skipped = rows.begins.size() + kHead + kName.size();  // the index
  part.clear();
  append(part, stream.first(2));
  append(part, stream.subspan(skipped, rows.scan_begin - skipped));
  const int64_t height = std::min(end * rows.row_height, rows.height) - first * rows.row_height;
  const size_t height_at = 2 + rows.height_at - skipped;
  part[height_at] = static_cast<std::byte>(height >> 8);
  part[height_at + 1] = static_cast<std::byte>(height & 0xFF);
  const size_t begin = rows.begin(first), before = part.size();
  const bool is_last = end == rows.count();
  append(part, stream.subspan(begin, (is_last ? stream.size() : rows.begin(end) - 2) - begin));
  // Restart markers count from 0 again.
  for (int64_t i = first + 1; i < end; ++i) {
    part[before + rows.begin(i) - begin - 1] =
        static_cast<std::byte>(kFirstRestart + (i - first - 1) % 8);
  }
  if (!is_last) append(part, std::as_bytes(std::span("\xFF\xD9", 2)));
}

Result<std::string> add_jpeg_rows(Bytes stream) {
  const std::string as_it_is(reinterpret_cast<const char*>(stream.data()), stream.size());
  Transcoder transcoder;
  if (setjmp(transcoder.errors.jump) != 0) {
    return base::corrupt(fmt::format("the JPEG: {}; make the image again, or leave it out",
                                     transcoder.errors.message));
  }
  if (!transcoder.read(stream)) return as_it_is;
  transcoder.write();
  const Bytes made = std::as_bytes(std::span(transcoder.bytes, transcoder.size));
  JpegRows rows;
  if (!read_headers(made, 2, rows)) return as_it_is;
  const std::string begins = row_begins(made, rows.scan_begin);
  const size_t length = 2 + kName.size() + begins.size();
  if (length > kMaxSegment) return as_it_is;
  std::string indexed = "\xFF\xD8\xFF\xE9";
  indexed += static_cast<char>(length >> 8);
  indexed += static_cast<char>(length & 0xFF);
  indexed += kName;
  indexed += begins;
  indexed.append(reinterpret_cast<const char*>(made.data()) + 2, made.size() - 2);
  return indexed;
}

}  // namespace hanji::data::internal
