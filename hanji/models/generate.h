#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "hanji/layers/model.h"

namespace hanji::models {

struct GenerateOptions {
  int64_t num_tokens = 200;
  double temperature = 1.0;                     ///< 0 takes the likeliest token.
  int64_t top_k = 0;                            ///< Choose among the k likeliest; 0: among all.
  uint64_t seed = 1;                            ///< Draw i depends on (seed, i) alone.
  int64_t block = 1;                            ///< Tokens that the model sees at most.
  int64_t vocabulary = 256;                     ///< Width of its last flow.
  std::vector<layers::LayerScope> scopes = {};  ///< Around each layer.
  /// Runs all layers in place of the model, whose scopes it has; empty: the model does.
  std::function<layers::Flow(const layers::Batch&)> forward = {};
  c10::Device device = c10::kCPU;
};

/// Continues `prompt`, one token after the other; the model sees its last `block` tokens.
///
/// Shape   the model takes tokens [1, T], without targets, and its last flow is [1, any, vocabulary],
///         of which the last row is read.
/// Order   of a model that several ranks cut, or whose layers they share out, collective among them.
/// Result  the new tokens. Dropout is off meanwhile; the model's mode is as before afterwards.
/// Cost    one forward of at most `block` tokens per new token.
/// Errors  throws kInvalidArgument for an empty prompt, a token outside the vocabulary, a negative
///         number of tokens, temperature or top_k, a temperature that is not finite.
std::vector<int64_t> generate(layers::Model& model, std::span<const int64_t> prompt,
                              const GenerateOptions& options);

}  // namespace hanji::models
