#include "hanji/data/internal/image_renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "hanji/base/clock.h"

namespace hanji::data::internal {
namespace {

/// The part of [0, size) that pixels moved by `shift` cover.
std::pair<int64_t, int64_t> covered(int64_t size, int64_t shift) {
  return {std::clamp<int64_t>(shift, 0, size), std::clamp<int64_t>(size + shift, 0, size)};
}

/// Bytes of a raw image that are brought to the caches in one stream: a row waits for memory once per line.
constexpr size_t kTouchedAtOnce = size_t{1} << 16;

constexpr size_t kCacheLine = 64;
constexpr size_t kPage = 4096;

/// Of so many pixels a side, a few samples fill the caches before their batch is read.
bool is_large(int64_t size) { return size >= 128; }

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
  const auto bytes = static_cast<size_t>(3 * crop.width + bytes_behind_row(*across_));
  const auto* all = reinterpret_cast<const uint8_t*>(image.bytes.data());
  if (begin + bytes <= image.bytes.size()) return all + begin;
  last_row_.assign(bytes, 0);
  std::copy_n(all + begin, 3 * crop.width, last_row_.data());
  return last_row_.data();
}

const LineFilter& ImageRenderer::filter_of(int64_t inputs, int64_t outputs) {
  LineFilter& filter = filters_[static_cast<size_t>(inputs) % kFilters];
  filter.make(inputs, outputs);
  return filter;
}

Status ImageRenderer::resize_rows(const StoredImage& image, const ImageView& view, int64_t size) {
  const PixelBox& crop = view.crop;
  const int64_t row_bytes = padded_row(size);
  rows_.resize(static_cast<size_t>(crop.height * row_bytes));
  across_ = &filter_of(crop.width, size);
  const Mirror mirror = view.is_flipped ? Mirror::kYes : Mirror::kNo;
  if (image.is_jpeg) {
    if (!image.is_near) touch(image.bytes, kPage);
    HANJI_RETURN_IF_ERROR(jpeg_.begin(image.bytes, image.size, crop, bytes_behind_row(*across_)));
  }
  const auto row_of_file = static_cast<size_t>(3 * image.size.width);
  size_t touched = static_cast<size_t>(crop.y) * row_of_file;
  for (int64_t y = 0; y < crop.height; ++y) {
    const uint8_t* row = nullptr;
    if (image.is_jpeg) {
      HANJI_ASSIGN_OR_RETURN(row, jpeg_.next_row());
    } else {
      if (!image.is_near && static_cast<size_t>(crop.y + y + 1) * row_of_file > touched) {
        const auto next = image.bytes.subspan(touched);
        touch(next.first(std::min(kTouchedAtOnce, next.size())), kCacheLine);
        touched += kTouchedAtOnce;
      }
      row = raw_row(image, crop, y);
    }
    if (view.until == MadeUntil::kDecoded) continue;
    resize_across(*across_, row, mirror, rows_.data() + y * row_bytes);
  }
  return {};
}

const uint8_t* ImageRenderer::resized_row(const ImageView& view, int64_t y, int64_t size,
                                          uint8_t* memory) {
  const int64_t from = view.is_vertically_flipped ? size - 1 - y : y;
  const int64_t row_bytes = padded_row(size);
  if (down_->changes_nothing()) return rows_.data() + from * row_bytes;
  resize_down(*down_, from, rows_.data(), row_bytes, memory);
  return memory;
}

void ImageRenderer::make_tile(const ImageView& view, int64_t size) {
  const int64_t row_bytes = padded_row(size);
  tile_.resize(static_cast<size_t>(size * row_bytes));
  int64_t sum_of_grays = 0;
  for (int64_t y = 0; y < size; ++y) {
    uint8_t* row = tile_.data() + y * row_bytes;
    const uint8_t* made = resized_row(view, y, size, row);
    if (made != row) std::copy_n(made, row_bytes, row);
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
  for (int64_t y = 0; y < size; ++y) resized_row(view, y, size, pixels_.data());
}

void ImageRenderer::touch(std::span<const std::byte> bytes, size_t stride) {
  const int64_t begun = base::now_ns();
  for (size_t i = 0; i < bytes.size(); i += stride) touched_ += static_cast<uint64_t>(bytes[i]);
  waited_ns_ += base::now_ns() - begun;
}

std::array<float*, 3> ImageRenderer::rows_between_zeros(int64_t padded, int64_t zeros) {
  const bool fits = zeros <= zeros_ && std::ssize(scaled_) == 3 * (padded + 2 * zeros_);
  if (!fits) {
    zeros_ = std::max(zeros, zeros_);
    scaled_.assign(static_cast<size_t>(3 * (padded + 2 * zeros_)), 0);
  }
  const int64_t step = padded + 2 * zeros_;
  float* first = scaled_.data() + zeros_;
  return {first, first + step, first + 2 * step};
}

void ImageRenderer::write_planes(const ImageView& view, const ColourScale& colours, int64_t size,
                                 float* out) {
  const int64_t row_bytes = padded_row(size), padded = row_bytes / kPixelBytes;
  const int64_t plane = size * size;
  pixels_.resize(static_cast<size_t>(row_bytes));
  // Whole vectors end where the row does: nothing behind it is written.
  const bool fills_rows = padded == size && view.shift_x == 0;
  const bool past_caches = is_large(size) && reinterpret_cast<uintptr_t>(out) % kCacheLine == 0;
  const auto rows = rows_between_zeros(padded, std::abs(view.shift_x));
  const bool has_tile = needs_tile(view);
  if (has_tile) make_tile(view, size);
  const auto [top, bottom] = covered(size, view.shift_y);
  for (int c = 0; c < 3; ++c) {
    std::fill_n(out + c * plane, top * size, 0.0F);
    std::fill_n(out + c * plane + bottom * size, (size - bottom) * size, 0.0F);
  }
  for (int64_t y = top; y < bottom; ++y) {
    const int64_t from = y - view.shift_y;
    const uint8_t* row =
        has_tile ? tile_.data() + from * row_bytes : resized_row(view, from, size, pixels_.data());
    float* to = out + y * size;
    if (fills_rows) {
      (past_caches ? scale_row_past_caches : scale_row)(
          row, row_bytes, colours.scale, colours.offset, {to, to + plane, to + 2 * plane});
      continue;
    }
    scale_row(row, row_bytes, colours.scale, colours.offset, rows);
    for (int c = 0; c < 3; ++c) {
      std::fill_n(rows[c] + size, padded - size, 0.0F);
      std::copy_n(rows[c] - view.shift_x, size, to + c * plane);
    }
  }
  if (past_caches) flush_past_caches();
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
    touch(image.bytes, kCacheLine);
    return {};
  }
  HANJI_RETURN_IF_ERROR(resize_rows(image, view, size));
  if (view.until == MadeUntil::kDecoded) return {};
  down_ = &filter_of(view.crop.height, size);
  if (view.until == MadeUntil::kResized) {
    resize_only(view, size);
    return {};
  }
  write_planes(view, colours, size, out);
  return {};
}

}  // namespace hanji::data::internal
