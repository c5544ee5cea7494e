#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/plan/config.h"

namespace hanji::plan {

/// The sizes of a GPT as models/gpt builds it: pre-norm blocks, learned positions, causal
/// attention, tanh GELU of four times the width, biases everywhere but in the head.
struct ModelSpec {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t block = 64;
  int64_t vocabulary = 256;
  bool tied = true;
  double dropout = 0.0;
  int64_t kv_heads = 0;  ///< Heads of keys and values; 0: as many as heads.

  /// Elements of a token's keys, or values: K.
  int64_t kv_width() const;

  /// Result  V*C + T*C + L*(12*C*C + 13*C - 2*(C - K)*(C + 1)) + 2*C, and V*C more for an untied head.
  int64_t num_parameters() const;

  /// Sizes of all parameter tensors in the order in which models/gpt registers them.
  std::vector<int64_t> parameter_sizes() const;

  bool operator==(const ModelSpec&) const = default;
};

/// The sizes of a preset: "nano", "char", "baby", "gpt2"; `vocabulary` stays for the data to decide
/// (gpt2: 50257).
///
/// Errors  invalid_argument names the presets.
Result<ModelSpec> preset(std::string_view name);

/// The sizes of a GPT that a configuration asks for: its preset's, where a size is kAuto.
ModelSpec resolve_model(const ModelConfig& config);

}  // namespace hanji::plan
