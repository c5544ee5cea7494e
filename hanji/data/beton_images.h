#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "hanji/data/beton_file.h"
#include "hanji/data/source.h"
#include "hanji/plan/choices.h"
#include "hanji/plan/image_stages.h"

namespace hanji::data {

struct BetonImagesOptions {
  plan::ImageStages stages;
  int64_t size = 32;                 ///< Pixels of a side of a sample.
  uint64_t seed = 1;                 ///< Of augmentation.
  double validation_fraction = 0.1;  ///< Spread over the file, in [0, 1).
  /// kSkip: the next sample of its part that can be read takes the place of a damaged one.
  plan::CorruptPolicy corrupt = plan::CorruptPolicy::kStop;
  /// Called with the error of each sample that is skipped, from any thread.
  std::function<void(const Status&)> report_skipped = {};
};

/// The labelled images of a .beton file: its first image field and its first int field.
///
/// The file is cut into as many equal runs as there are validation samples, of each of which one,
/// drawn by its number, validates: so classes that follow each other in the file are in both parts.
/// Shape   inputs [3, size, size] float32; targets one class.
/// Result  in training a sample depends on (seed, epoch, its number in the file), in validation on
///         its number alone.
/// Cost    open() reads every label and the allocation table. A sample is decoded when it is read.
class BetonImages final : public Source {
 public:
  /// Errors  kUnsupported for a file without an image and an int field; kCorrupt for a label below
  ///         0; kInvalidArgument for sizes or parts without samples; those of BetonFile.
  static Result<BetonImages> create(BetonFile file, const BetonImagesOptions& options);
  BetonImages(BetonImages&&) noexcept;
  BetonImages& operator=(BetonImages&&) noexcept;
  ~BetonImages() override;

  int64_t count(Part part) const override;
  SampleShape shape() const override;
  /// Without augmentation.
  Status read(Part part, int64_t index, layers::Batch& batch, int64_t row) const override;
  Status read_in_epoch(int64_t epoch, int64_t index, layers::Batch& batch,
                       int64_t row) const override;
  /// Of the labels, places and sizes of all samples, the size and the stages; not of the pixels,
  /// which have checksums of their own.
  uint64_t checksum() const override;

  /// The largest label and one.
  int64_t num_classes() const;
  /// The number in the file of a sample of a part.
  int64_t sample_of(Part part, int64_t index) const;

 private:
  struct State;
  explicit BetonImages(std::unique_ptr<State> state);

  /// Tries `read_one` of the index, with kSkip of the next ones until one can be read.
  template <class ReadOne>
  Status read_or_skip(Part part, int64_t index, const ReadOne& read_one) const;

  std::unique_ptr<State> state_;
};

}  // namespace hanji::data
