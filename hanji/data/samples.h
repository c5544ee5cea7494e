#pragma once

#include <cstdint>

#include "hanji/base/status.h"
#include "hanji/data/source.h"
#include "hanji/data/token_source.h"
#include "hanji/layout/range.h"

namespace hanji::data {

/// How a run of tokens is cut into samples.
struct SampleOptions {
  int64_t block = 0;                 ///< Tokens of one input.
  double validation_fraction = 0.1;  ///< The last part of the text, in [0, 1).
  int64_t vocabulary = 0;            ///< Ids at or above are refused when they are met.
};

/// Fixed-length samples of a text, without an index: sample i is the T+1 tokens from i*T on.
///
/// Its first T tokens are the input, its last T the targets; the T+1st is also the next sample's
/// first, so every token but a part's first is a target once. No sample crosses the parts' border.
/// Thread  any number of threads may read.
class TokenSamples final : public Source {
 public:
  /// Errors  kInvalidArgument: a text too short for one training sample, or for one validation
  ///         sample where a fraction is asked; a block or fraction out of range.
  static Result<TokenSamples> create(TokenSource tokens, const SampleOptions& options);

  int64_t count(Part part) const override;
  int64_t block() const { return options_.block; }
  /// The tokens of a part: [0, border) and [border, num_tokens).
  layout::Range range(Part part) const;
  const TokenSource& tokens() const { return tokens_; }

  /// Shape   inputs and targets [block()].
  SampleShape shape() const override;
  Status read(Part part, int64_t index, layers::Batch& batch, int64_t row) const override;
  void expect(int64_t index) const override { tokens_.expect(index * block()); }
  uint64_t checksum() const override { return tokens_.checksum(); }
  /// Pages of 8 MiB, by a sample's first token.
  std::vector<uint32_t> train_pages() const override;

  /// Writes block() inputs and block() targets of sample `index` of `part`.
  /// Errors  kInvalidArgument for an index outside the part; kCorrupt for a token id beyond the
  ///         vocabulary, with its position.
  Status copy_sample(Part part, int64_t index, int64_t* inputs, int64_t* targets) const;

 private:
  TokenSamples(TokenSource tokens, const SampleOptions& options, int64_t border)
      : tokens_(std::move(tokens)), options_(options), border_(border) {}

  TokenSource tokens_;
  SampleOptions options_;
  int64_t border_;
};

}  // namespace hanji::data
