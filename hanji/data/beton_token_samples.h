#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/data/beton_file.h"
#include "hanji/data/page_cache.h"
#include "hanji/data/samples.h"
#include "hanji/data/source.h"

namespace hanji::data {

/// The runs of token ids in a .beton file, as `hanji data make --tokens` writes them: its first array
/// of one dimension of integers.
///
/// Of the block + 1 ids of a sample the first `block` are the input and the last the targets. The last
/// part of the file validates, as of TokenSamples.
/// Thread  any number of threads may read.
class BetonTokenSamples final : public Source {
 public:
  /// `options.vocabulary` below 0: all ids are accepted. `cached_pages` as of BetonImagesOptions.
  /// Cost    reads the file once: largest token, checksum.
  /// Errors  kUnsupported for a file without such a field; kInvalidArgument for samples of another
  ///         length than the block's, a vocabulary that is too small, a part without samples; those of
  ///         BetonFile and PageCache::open().
  static Result<BetonTokenSamples> create(BetonFile file, const SampleOptions& options,
                                          int64_t cached_pages = 0);
  BetonTokenSamples(BetonTokenSamples&&) noexcept;
  BetonTokenSamples& operator=(BetonTokenSamples&&) noexcept;
  ~BetonTokenSamples() override;

  int64_t count(Part part) const override;
  /// Shape   inputs and targets [block].
  SampleShape shape() const override;
  Status read(Part part, int64_t index, layers::Batch& batch, int64_t row) const override;
  void expect(int64_t index) const override;
  /// The same sample in every epoch.
  Status read_in_epoch(int64_t epoch, int64_t index, layers::Batch& batch,
                       int64_t row) const override;
  uint64_t checksum() const override;
  /// Of the file.
  std::vector<uint32_t> train_pages() const override;
  /// As BetonImages::cache(): samples to train on are read from it once it is attached.
  const std::shared_ptr<PageCache>& cache() const;
  int64_t largest_token() const;

 private:
  struct State;
  explicit BetonTokenSamples(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hanji::data
