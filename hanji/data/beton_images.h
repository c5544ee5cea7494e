#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "hanji/data/beton_file.h"
#include "hanji/data/page_cache.h"
#include "hanji/data/source.h"
#include "hanji/plan/choices.h"
#include "hanji/plan/image_stages.h"

namespace hanji::data {

/// The pixels of a training sample after crop, resize, flip and colours: size rows of size pixels, each
/// of red, green, blue and an unused byte.
struct ImageTile {
  uint8_t* pixels = nullptr;
  int64_t row_bytes = 0;
  int64_t size = 0;
  int64_t sample = 0;  ///< Its number in the file.
  uint64_t key =
      0;  ///< Of (seed, epoch, sample), for what is random: base::Philox::draw(key, ...).
};

struct BetonImagesOptions {
  plan::ImageStages stages;
  int64_t size = 32;                 ///< Pixels of a side of a sample.
  uint64_t seed = 1;                 ///< Of augmentation.
  double validation_fraction = 0.1;  ///< Spread over the file, in [0, 1).
  /// kSkip: the next sample of its part that can be read takes the place of a damaged one.
  plan::CorruptPolicy corrupt = plan::CorruptPolicy::kStop;
  /// A stage of the program's own, of training samples only: between colours and translate. It is not
  /// part of checksum(). Called from any thread.
  std::function<void(const ImageTile&)> change_tile = {};
  /// Pages of at most so many at a time are in memory of the process: training samples are read from
  /// cache() once it is attached. 0: all through the kernel's cache.
  int64_t cached_pages = 0;
  /// Called with the error of each sample that is skipped, from any thread.
  std::function<void(const Status&)> report_skipped = {};
};

/// The labelled images of a .beton file: its first image field and its first int field.
///
/// The file is cut into as many equal runs as there are validation samples, of each of which one,
/// drawn by its number, validates: so classes that follow each other in the file are in both parts.
/// Shape   inputs [3, size, size] float32; targets one class, or with mixup or cutmix the weight of each
///         class, [num_classes] float32.
/// Result  in training a sample depends on (seed, epoch, its number in the file), in validation on
///         its number alone.
/// Cost    open() reads every label and the allocation table. A sample is decoded when it is read.
class BetonImages final : public Source {
 public:
  /// Errors  those of PageCache::open(); kUnsupported for a file without an image and an int field; kCorrupt for a label below
  ///         0; kInvalidArgument for sizes or parts without samples; those of BetonFile.
  static Result<BetonImages> create(BetonFile file, const BetonImagesOptions& options);
  BetonImages(BetonImages&&) noexcept;
  BetonImages& operator=(BetonImages&&) noexcept;
  ~BetonImages() override;

  int64_t count(Part part) const override;
  SampleShape shape() const override;
  /// Without augmentation.
  Status read(Part part, int64_t index, layers::Batch& batch, int64_t row) const override;
  void expect(int64_t index) const override;
  Status read_in_epoch(int64_t epoch, int64_t index, layers::Batch& batch,
                       int64_t row) const override;
  /// read, decode for JPEGs, then the stages in the order in which they are done: what moves and fills
  /// is written with the levels, so that it comes after normalise.
  std::vector<std::string> parts() const override;
  Status read_parts(size_t last, const SampleRow& into) const override;
  std::optional<double> fetching_seconds() const override;
  bool mixes_pairs() const override;
  void mix(const SampleRow& even, const SampleRow& odd) const override;
  /// Of the labels, places and sizes of all samples, the checksums of pages, the size and the stages. Of a
  /// file without checksums the pixels are not in it.
  uint64_t checksum() const override;

  /// Null unless cached_pages. Samples that validate, or take the place of a skipped one, are read
  /// through the kernel's cache.
  const std::shared_ptr<PageCache>& cache() const;
  /// Those of the images.
  std::vector<uint32_t> train_pages() const override;
  /// Of each training sample: "balanced" is one over the number of its class, else the float field of
  /// this name.
  /// Errors  as BetonFile::find_field(); kInvalidArgument for a field of another type.
  Result<std::vector<double>> weights(std::string_view name) const;

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
