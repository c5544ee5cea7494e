#pragma once

#include <cstdint>

#include "hanji/data/source.h"

namespace hanji::data {

struct ImageOptions {
  uint64_t seed = 1;
  int64_t size = 32;  ///< Pixels of a side.
  int64_t classes = 10;
  int64_t count = 50000;             ///< Of both parts.
  double validation_fraction = 0.1;  ///< The last part, in [0, 1).
};

/// Coloured shapes on noise, drawn when they are asked for: something to learn without a file.
///
/// Class c is shape c % 5 (disc, bar, triangle, cross, ring) in hue c / 5 of as many as there have
/// to be, evenly spaced. Place, size, brightness and noise differ by sample.
/// Shape   inputs [3, size, size] float32 in about [-1.5, 1.5]; targets one class.
/// Result  sample i depends on (seed, i) and the options of size and classes alone, and is of class
///         i % classes; the validation part goes on counting where the training part ends.
/// Cost    no memory; about 2 ns per number.
class GeneratedImages final : public Source {
 public:
  /// Errors  kInvalidArgument for less than 8 pixels, 2 classes, or one sample in each part.
  static Result<GeneratedImages> create(const ImageOptions& options);

  int64_t count(Part part) const override;
  SampleShape shape() const override;
  Status read(Part part, int64_t index, layers::Batch& batch, int64_t row) const override;
  uint64_t checksum() const override;

  int64_t classes() const { return options_.classes; }
  const ImageOptions& options() const { return options_; }

 private:
  explicit GeneratedImages(const ImageOptions& options) : options_(options) {}

  void draw(int64_t sample, float* out) const;

  ImageOptions options_;
};

}  // namespace hanji::data
