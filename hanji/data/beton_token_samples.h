#pragma once

#include <cstdint>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/data/beton_file.h"
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
  /// `options.vocabulary` below 0: all ids are accepted.
  /// Cost    reads the file once: largest token, checksum.
  /// Errors  kUnsupported for a file without such a field; kInvalidArgument for samples of another
  ///         length than the block's, a vocabulary that is too small, a part without samples; those of
  ///         BetonFile.
  static Result<BetonTokenSamples> create(BetonFile file, const SampleOptions& options);

  int64_t count(Part part) const override;
  /// Shape   inputs and targets [block].
  SampleShape shape() const override;
  Status read(Part part, int64_t index, layers::Batch& batch, int64_t row) const override;
  uint64_t checksum() const override { return checksum_; }
  /// Of the file.
  std::vector<uint32_t> train_pages() const override;
  int64_t largest_token() const { return largest_token_; }

 private:
  BetonTokenSamples(BetonFile file, size_t field, TokenWidth width, int64_t block)
      : file_(std::move(file)), field_(field), width_(width), block_(block) {}

  /// The block + 1 ids of a sample of the file.
  Result<TokenSource> tokens(int64_t sample) const;
  Status look_through();
  int64_t sample_of(Part part, int64_t index) const;

  BetonFile file_;
  size_t field_;
  TokenWidth width_;
  int64_t block_;
  int64_t border_ = 0;  ///< The first sample that validates.
  int64_t largest_token_ = -1;
  uint64_t checksum_ = 0;
};

}  // namespace hanji::data
