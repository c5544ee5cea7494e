#include "hanji/data/internal/image_renderer.h"

#include <fmt/format.h>

#include <algorithm>

namespace hanji::data::internal {
namespace {

/// The part of [0, size) that pixels moved by `shift` cover.
std::pair<int64_t, int64_t> covered(int64_t size, int64_t shift) {
  return {std::clamp<int64_t>(shift, 0, size), std::clamp<int64_t>(size + shift, 0, size)};
}

/// Bytes of a raw image that are brought to the caches in one stream: a row waits for memory once per line.
constexpr size_t kTouchedAtOnce = size_t{1} << 16;

/// Whether the whole sample is to be seen before it is written.
bool needs_tile(const ImageView& view) { return view.change || !view.colour.change_nothing(); }

}  // namespace

ColourScale::ColourScale(const plan::ImageStages& stages) {
  for (size_t c = 0; c < 3; ++c) {
    scale[c] = static_cast<float>(1 / (255 * stages.deviation[c]));
    offset[c] = static_cast<float>(-stages.mean[c] / stages.deviation[c]);
  }
}

const uint8_t* ImageRenderer::raw_row(const StoredImage& image, PixelBox crop, int64_t y) {
  const auto begin = static_cast<size_t>(3 * ((crop.y + y) * image.size.width + crop.x));
  const auto bytes = static_cast<size_t>(3 * crop.width + bytes_behind_row(across_));
  const auto* all = reinterpret_cast<const uint8_t*>(image.bytes.data());
  if (begin + bytes <= image.bytes.size()) return all + begin;
  last_row_.assign(bytes, 0);
  std::copy_n(all + begin, 3 * crop.width, last_row_.data());
  return last_row_.data();
}

Status ImageRenderer::resize_rows(const StoredImage& image, const ImageView& view, int64_t size) {
  const PixelBox& crop = view.crop;
  const int64_t row_bytes = padded_row(size);
  rows_.resize(static_cast<size_t>(crop.height * row_bytes));
  across_.make(crop.width, size);
  const Mirror mirror = view.is_flipped ? Mirror::kYes : Mirror::kNo;
  if (image.is_jpeg) {
    HANJI_RETURN_IF_ERROR(jpeg_.begin(image.bytes, image.size, crop, bytes_behind_row(across_)));
  }
  const auto row_of_file = static_cast<size_t>(3 * image.size.width);
  size_t touched = static_cast<size_t>(crop.y) * row_of_file;
  for (int64_t y = 0; y < crop.height; ++y) {
    const uint8_t* row = nullptr;
    if (image.is_jpeg) {
      HANJI_ASSIGN_OR_RETURN(row, jpeg_.next_row());
    } else {
      if (static_cast<size_t>(crop.y + y + 1) * row_of_file > touched) {
        const auto next = image.bytes.subspan(touched);
        touch(next.first(std::min(kTouchedAtOnce, next.size())));
        touched += kTouchedAtOnce;
      }
      row = raw_row(image, crop, y);
    }
    if (view.until == MadeUntil::kDecoded) continue;
    resize_across(across_, row, mirror, rows_.data() + y * row_bytes);
  }
  return {};
}

void ImageRenderer::resize_down_to(const ImageView& view, int64_t y, int64_t size, uint8_t* row) {
  const int64_t from = view.is_vertically_flipped ? size - 1 - y : y;
  resize_down(down_, from, rows_.data(), padded_row(size), row);
}

void ImageRenderer::make_tile(const ImageView& view, int64_t size) {
  const int64_t row_bytes = padded_row(size);
  tile_.resize(static_cast<size_t>(size * row_bytes));
  int64_t sum_of_grays = 0;
  for (int64_t y = 0; y < size; ++y) {
    uint8_t* row = tile_.data() + y * row_bytes;
    resize_down_to(view, y, size, row);
    if (!view.colour.change_nothing()) {
      sum_of_grays += brighten_row(view.colour.brightness, size, row);
    }
  }
  const int64_t num_pixels = size * size;
  const auto mean = static_cast<int32_t>((sum_of_grays + num_pixels / 2) / num_pixels);
  for (int64_t y = 0; y < size && !view.colour.change_nothing(); ++y) {
    tint_row(view.colour, mean, size, tile_.data() + y * row_bytes);
  }
  if (view.change) view.change(tile_.data(), row_bytes);
}

void ImageRenderer::resize_only(const ImageView& view, int64_t size) {
  if (needs_tile(view)) return make_tile(view, size);
  pixels_.resize(static_cast<size_t>(padded_row(size)));
  for (int64_t y = 0; y < size; ++y) resize_down_to(view, y, size, pixels_.data());
}

void ImageRenderer::touch(std::span<const std::byte> bytes) {
  constexpr size_t kCacheLine = 64;
  for (size_t i = 0; i < bytes.size(); i += kCacheLine) touched_ += static_cast<uint64_t>(bytes[i]);
}

void ImageRenderer::write_planes(const ImageView& view, const ColourScale& colours, int64_t size,
                                 float* out) {
  const int64_t row_bytes = padded_row(size), padded = row_bytes / kPixelBytes;
  const int64_t plane = size * size;
  pixels_.resize(static_cast<size_t>(row_bytes));
  scaled_.resize(static_cast<size_t>(3 * padded));
  const std::array<float*, 3> planes = {scaled_.data(), scaled_.data() + padded,
                                        scaled_.data() + 2 * padded};
  // Whole vectors end where the row does: nothing behind it is written.
  const bool fills_rows = padded == size && view.shift_x == 0;
  const bool has_tile = needs_tile(view);
  if (has_tile) make_tile(view, size);
  const auto [top, bottom] = covered(size, view.shift_y);
  const auto [left, right] = covered(size, view.shift_x);
  if (bottom - top < size || right - left < size) std::fill_n(out, 3 * plane, 0.0F);
  for (int64_t y = top; y < bottom; ++y) {
    const int64_t from = y - view.shift_y;
    if (!has_tile) resize_down_to(view, from, size, pixels_.data());
    const uint8_t* row = has_tile ? tile_.data() + from * row_bytes : pixels_.data();
    if (fills_rows) {
      float* to = out + y * size;
      scale_row(row, row_bytes, colours.scale, colours.offset, {to, to + plane, to + 2 * plane});
      continue;
    }
    scale_row(row, row_bytes, colours.scale, colours.offset, planes);
    for (int c = 0; c < 3; ++c) {
      std::copy_n(planes[c] + left - view.shift_x, right - left, out + c * plane + y * size + left);
    }
  }
  for (int64_t y = view.hole.y; y < view.hole.y + view.hole.height; ++y) {
    for (int c = 0; c < 3; ++c) {
      std::fill_n(out + c * plane + y * size + view.hole.x, view.hole.width, 0.0F);
    }
  }
}

Status ImageRenderer::render(const StoredImage& image, const ImageView& view,
                             const ColourScale& colours, int64_t size, float* out) {
  const auto raw_bytes = static_cast<size_t>(3 * image.size.width * image.size.height);
  if (!image.is_jpeg && image.bytes.size() != raw_bytes) {
    return base::corrupt(fmt::format("{} bytes of a raw image of {}; write the file again",
                                     image.bytes.size(), raw_bytes));
  }
  if (view.until == MadeUntil::kRead) {
    touch(image.bytes);
    return {};
  }
  HANJI_RETURN_IF_ERROR(resize_rows(image, view, size));
  if (view.until == MadeUntil::kDecoded) return {};
  down_.make(view.crop.height, size);
  if (view.until == MadeUntil::kResized) {
    resize_only(view, size);
    return {};
  }
  write_planes(view, colours, size, out);
  return {};
}

}  // namespace hanji::data::internal
