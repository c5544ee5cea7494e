#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hanji::data::internal {

/// The weights by which pixels of a line become those of a shorter or longer one: a triangle as wide
/// as a pixel of the result, at least as one of the line.
///
/// Output i is the sum of weights[i * taps + k] * input[first[i] + k], by kWeightOne; inputs behind
/// the line have no weight.
/// Source  Pillow, Resample.c, the filter BILINEAR.
struct LineFilter {
  static constexpr int kBits = 14;
  static constexpr int kWeightOne = 1 << kBits;
  static constexpr int64_t kTapsAtOnce = 4;

  int64_t inputs = 0;
  int64_t taps = 0;  ///< A multiple of kTapsAtOnce.
  int64_t used = 0;  ///< Of them, those that have weights, rounded up to an even number.
  std::vector<int64_t> first;
  std::vector<int16_t> weights;

  /// The memory is used again, and all of it for the sizes of the call before.
  void make(int64_t inputs, int64_t outputs);
  /// Whether each output is its input.
  bool changes_nothing() const { return inputs == static_cast<int64_t>(first.size()); }
};

/// Levels 0 to 255 of red, green, blue and nothing.
inline constexpr int64_t kPixelBytes = 4;
/// What resize_across() may read behind the last pixel of a row.
inline constexpr int64_t bytes_behind_row(const LineFilter& filter) { return 3 * filter.taps + 16; }
/// Bytes of a row of pixels with room for whole vectors.
inline constexpr int64_t padded_row(int64_t pixels) {
  return (kPixelBytes * pixels + 63) / 64 * 64;
}

/// Which end of the result the first output is at.
enum class Mirror : bool { kNo, kYes };

/// Writes a row of pixels from one of RGB bytes.
void resize_across(const LineFilter& filter, const uint8_t* rgb, Mirror mirror, uint8_t* pixels);

/// Writes row `i` of the result from filter.inputs rows of padded `row_bytes`.
void resize_down(const LineFilter& filter, int64_t i, const uint8_t* rows, int64_t row_bytes,
                 uint8_t* pixels);

/// Factors of plan::ColourAmounts for one sample, times kOne.
struct ColourFactors {
  static constexpr int kBits = 12;
  static constexpr int32_t kOne = 1 << kBits;

  int32_t brightness = kOne;
  int32_t contrast = kOne;
  int32_t saturation = kOne;
  float hue_sextants = 0;  ///< Added to the angle, -3 to 3.

  bool change_nothing() const {
    return brightness == kOne && contrast == kOne && saturation == kOne && hue_sextants == 0;
  }
};

/// Multiplies the levels of a row of padded_row(pixels) bytes, and returns the sum of the grays of its
/// `num_pixels` pixels after it.
int64_t brighten_row(int32_t brightness, int64_t num_pixels, uint8_t* pixels);

/// Applies contrast around `mean_gray`, then saturation and hue, to a row of padded_row(pixels) bytes.
void tint_row(const ColourFactors& factors, int32_t mean_gray, int64_t num_pixels, uint8_t* pixels);

/// Mixes two rows: a = of_a * a + (1 - of_a) * b and, of the same values, b = of_b * b + (1 - of_b) * a.
void mix_rows(float of_a, float of_b, int64_t count, float* a, float* b);

/// A plane of floats for each colour of a row: level * scale + offset; room as for padded_row().
void scale_row(const uint8_t* pixels, int64_t row_bytes, const std::array<float, 3>& scale,
               const std::array<float, 3>& offset, const std::array<float*, 3>& planes);

/// As scale_row(), to planes that begin at multiples of 64 bytes and are not read soon: their memory is
/// written without being read first. Order: flush_past_caches() before another thread, or these bytes again.
void scale_row_past_caches(const uint8_t* pixels, int64_t row_bytes,
                           const std::array<float, 3>& scale, const std::array<float, 3>& offset,
                           const std::array<float*, 3>& planes);
void flush_past_caches();

}  // namespace hanji::data::internal
