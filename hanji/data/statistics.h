#pragma once

#include <cstdint>

#include "hanji/base/status.h"
#include "hanji/data/samples.h"

namespace hanji::data {

/// What pairs of neighbouring tokens alone can tell about a text, in nats per token.
struct BigramEntropy {
  /// The empirical conditional entropy H(next | current) of the whole text, training and
  /// validation part: the mean loss on it of the best table of pairs there is, which has seen all
  /// of it. A model whose validation loss lies below uses more than the current token.
  double text_nats = 0;
  /// The mean loss on the validation part of the pairs counted in the training part, smoothed by
  /// Witten and Bell's rule with single-token frequencies: what a bigram model reaches when it is
  /// judged as ours is. 0 without a validation part.
  double validation_nats = 0;
};

/// Cost    two passes over the tokens and 8 V^2 bytes for a vocabulary of V.
/// Errors  kUnsupported above kMaxBigramTokens ids, where a table of pairs is no yardstick: most
///         pairs occur once. kInvalidArgument for a text of one token. kCorrupt for a token id
///         beyond the vocabulary.
/// Source  Shannon, Bell Syst. Tech. J. 30(1), 1951, eq. 1 (F_2); Witten & Bell, IEEE Trans. Inf.
///         Theory 37(4), 1991, method C.
Result<BigramEntropy> bigram_entropy(const TokenSamples& samples, int64_t vocabulary);

inline constexpr int64_t kMaxBigramTokens = 4096;

}  // namespace hanji::data
