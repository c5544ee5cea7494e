#include "hanji/data/internal/jpeg_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <new>
#include <vector>
// after <cstdio>, which it needs
#include <jerror.h>
#include <jpeglib.h>

#include "hanji/data/internal/jpeg_header.h"
#include "hanji/data/internal/jpeg_rows.h"

namespace hanji::data::internal {

/// libjpeg's error handling returns by longjmp to where `jump` was set.
struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  Code code;
  std::array<char, JMSG_LENGTH_MAX> message;
};

namespace {

constexpr uint64_t kMaxCoefficientBytes = uint64_t{1} << 30;
constexpr int kMaxScans = 500;
/// Smooth upsampling reads neighbours, which a cut at the box's own edge would not have.
constexpr int64_t kMargin = 2;
constexpr size_t kRowRoom = 64;

/// What decoders of photos accept: bytes between segments, odd application markers.
bool is_harmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_JFIF_MAJOR ||
         warning == JWRN_ADOBE_XFORM || warning == JWRN_TOO_MUCH_DATA;
}

JpegErrors& manager_of(j_common_ptr info) {
  return *reinterpret_cast<JpegErrors*>(info->err);  // its first member
}

[[noreturn]] void fail(j_common_ptr info, Code code) {
  JpegErrors& manager = manager_of(info);
  info->err->format_message(info, manager.message.data());
  manager.code = code;
  std::longjmp(manager.jump, 1);
}

bool is_of_another_kind(int error) {
  return error == JERR_SOF_UNSUPPORTED || error == JERR_ARITH_NOTIMPL ||
         error == JERR_BAD_PRECISION || error == JERR_CONVERSION_NOTIMPL ||
         error == JERR_CCIR601_NOTIMPL || error == JERR_NOTIMPL;
}

void on_error(j_common_ptr info) {
  const int error = info->err->msg_code;
  if (error == JERR_OUT_OF_MEMORY) fail(info, Code::kOutOfMemory);
  fail(info, is_of_another_kind(error) ? Code::kUnsupported : Code::kCorrupt);
}

void on_message(j_common_ptr info, int level) {
  if (level < 0 && !is_harmless(info->err->msg_code)) fail(info, Code::kCorrupt);
}

void on_output(j_common_ptr) {}

/// A small progressive file may claim scans without end.
void on_progress(j_common_ptr info) {
  const auto* decoder = reinterpret_cast<j_decompress_ptr>(info);
  if (decoder->input_scan_number <= kMaxScans) return;
  JpegErrors& manager = manager_of(info);
  std::snprintf(manager.message.data(), manager.message.size(), "more than %d scans", kMaxScans);
  manager.code = Code::kUnsupported;
  std::longjmp(manager.jump, 1);
}

/// a * b / 255, rounded.
int times(int a, int b) {
  const int product = a * b + 128;
  return (product + (product >> 8)) >> 8;
}

/// In place, from the first pixel on, which is never behind what is read.
/// Source  Pillow, Convert.c, cmyk2rgb().
void make_rgb(uint8_t* row, size_t pixels) {
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t* inks = row + 4 * i;
    const int black = inks[3];
    const std::array<int, 3> rgb = {black - times(255 - inks[0], black),
                                    black - times(255 - inks[1], black),
                                    black - times(255 - inks[2], black)};
    for (size_t c = 0; c < 3; ++c) row[3 * i + c] = static_cast<uint8_t>(rgb[c]);
  }
}

}  // namespace

struct JpegReader::State {
  jpeg_decompress_struct decoder = {};
  JpegErrors errors = {};
  jpeg_progress_mgr progress = {};
  std::vector<uint8_t> row;
  std::vector<std::byte> part;  ///< Rows of blocks of an image that has an index of them.
  int64_t first_column = 0;     ///< Of the box, within a row.

  /// libjpeg-turbo writes rows whose begin is a multiple of 16 or 32 bytes past the caches, from which
  /// they are read next.
  uint8_t* row_begin() {
    const auto address = reinterpret_cast<uintptr_t>(row.data());
    return row.data() + (kRowRoom - 32 + 8 - address % 32);
  }

  Status failure() const {
    return {errors.code, fmt::format("the JPEG: {}; make the image again, or leave it out",
                                     errors.message.data())};
  }

  /// Leaves out the rows of blocks above the box, if the stream says where they begin.
  void leave_out(std::span<const std::byte>& stream, ImageSize& size, PixelBox& box) {
    const int64_t above = box.y - kMargin;
    if (above < 8) return;  // no row of blocks is lower
    const auto rows = find_jpeg_rows(stream);
    if (!rows || rows->height != size.height || above < rows->row_height) return;
    const int64_t first = above / rows->row_height;
    const int64_t below = box.y + box.height + kMargin;
    const int64_t end = std::min(rows->count(), (below + rows->row_height - 1) / rows->row_height);
    cut_jpeg_rows(stream, *rows, first, end, part);
    stream = part;
    size.height = std::min(end * rows->row_height, size.height) - first * rows->row_height;
    box.y -= first * rows->row_height;
  }

  Status check_header(ImageSize size) {
    const int64_t width = decoder.image_width, height = decoder.image_height;
    if (width != size.width || height != size.height) {
      return base::corrupt(
          fmt::format("the JPEG has {} x {} pixels, its record {} x {}; write the file again",
                      width, height, size.width, size.height));
    }
    const int components = decoder.num_components;
    if (components != 1 && components != 3 && components != 4) {
      return base::unsupported(
          fmt::format("the JPEG has {} components; convert it to RGB or gray", components));
    }
    const auto coefficients = static_cast<uint64_t>(2 * std::max(3, components));
    const uint64_t bytes = coefficients * decoder.image_width * decoder.image_height;
    if (jpeg_has_multiple_scans(&decoder) && bytes > kMaxCoefficientBytes) {
      return base::unsupported(
          fmt::format("the JPEG has {} x {} pixels in several scans, whose coefficients take "
                      "{} bytes (at most {}); convert it to a baseline JPEG",
                      width, height, bytes, kMaxCoefficientBytes));
    }
    return {};
  }

  /// Behind a place to jump to.
  void start(PixelBox box, int64_t behind) {
    decoder.out_color_space = decoder.num_components == 4 ? JCS_CMYK : JCS_RGB;
    decoder.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&decoder);
    const int64_t left = std::max<int64_t>(0, box.x - kMargin);
    const int64_t right = std::min<int64_t>(decoder.image_width, box.x + box.width + kMargin);
    auto begin = static_cast<JDIMENSION>(left);
    auto width = static_cast<JDIMENSION>(right - left);
    if (width < decoder.image_width) jpeg_crop_scanline(&decoder, &begin, &width);
    first_column = box.x - static_cast<int64_t>(begin);
    const auto pixel_bytes = static_cast<size_t>(decoder.output_components);
    row.resize(pixel_bytes * decoder.output_width + static_cast<size_t>(behind) + kRowRoom);
    jpeg_skip_scanlines(&decoder, static_cast<JDIMENSION>(box.y));
  }
};

JpegReader::JpegReader() : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.decoder.err = jpeg_std_error(&s.errors.base);
  s.errors.base.error_exit = on_error;
  s.errors.base.emit_message = on_message;
  s.errors.base.output_message = on_output;
  s.progress.progress_monitor = on_progress;
  if (setjmp(s.errors.jump) != 0) throw std::bad_alloc();
  jpeg_create_decompress(&s.decoder);
  s.decoder.progress = &s.progress;
}

JpegReader::~JpegReader() { jpeg_destroy_decompress(&state_->decoder); }

Status JpegReader::begin(std::span<const std::byte> stream, ImageSize size, PixelBox box,
                         int64_t behind) {
  State& s = *state_;
  if (stream.empty()) return base::corrupt("a JPEG of 0 bytes; write the file again");
  const bool is_jpeg =
      stream.size() > 1 && stream[0] == std::byte{0xFF} && stream[1] == std::byte{0xD8};
  if (!is_jpeg) return parse_jpeg_size(stream).status();
  s.leave_out(stream, size, box);
  if (setjmp(s.errors.jump) != 0) return s.failure();
  jpeg_abort_decompress(&s.decoder);
  jpeg_mem_src(&s.decoder, reinterpret_cast<const unsigned char*>(stream.data()), stream.size());
  jpeg_read_header(&s.decoder, TRUE);
  if (Status status = s.check_header(size); !status.ok()) return status;
  s.start(box, behind);
  return {};
}

Result<const uint8_t*> JpegReader::next_row() {
  State& s = *state_;
  if (setjmp(s.errors.jump) != 0) return s.failure();
  JSAMPROW row = s.row_begin();
  jpeg_read_scanlines(&s.decoder, &row, 1);
  if (s.decoder.output_components == 4) make_rgb(row, s.decoder.output_width);
  return s.row_begin() + 3 * s.first_column;
}

}  // namespace hanji::data::internal
