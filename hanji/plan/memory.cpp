#include "hanji/plan/memory.h"

namespace hanji::plan {
namespace {

constexpr int64_t kFloatBytes = 4;

int64_t compute_bytes(Precision precision) {
  switch (precision) {
    case Precision::kFloat64: return 8;
    case Precision::kBFloat16: return 2;
    case Precision::kFloat32: return 4;
  }
  return 4;
}

/// Residual stream and statistics keep the parameters' precision: fp32 under bf16.
int64_t stream_bytes(Precision precision) {
  return precision == Precision::kFloat64 ? 8 : kFloatBytes;
}

/// Rows of one layer, in the order of its forward pass.
void add_layers(const ModelSpec& m, const ActivationOptions& options, int64_t tokens,
                std::vector<SavedTensor>& saved) {
  const int64_t compute = compute_bytes(options.precision);
  const int64_t stream = stream_bytes(options.precision);
  const int64_t wide = tokens * m.width;
  saved.push_back({"layer.stream", 2 * m.layers, wide, stream});             // input of both norms
  saved.push_back({"layer.norm_statistics", 4 * m.layers, tokens, stream});  // mean and 1/deviation
  saved.push_back({"layer.norm_output", 2 * m.layers, wide, compute});  // input of qkv and of up
  saved.push_back({"layer.qkv", m.layers, 3 * wide, compute});          // input of attention
  saved.push_back({"layer.attention", m.layers, wide, compute});        // its result, input of proj
  const int64_t rows = options.micro_batch * m.heads * m.block;
  if (options.attention == Attention::kFlash) {
    saved.push_back({"layer.log_sum_exp", m.layers, rows, stream});
  } else {
    saved.push_back({"layer.probabilities", m.layers, rows * m.block, compute});
  }
  saved.push_back({"layer.up", m.layers, 4 * wide, compute});    // input of GELU
  saved.push_back({"layer.gelu", m.layers, 4 * wide, compute});  // its result, input of down
}

}  // namespace

std::vector<SavedTensor> saved_tensors(const ModelSpec& model, const ActivationOptions& options) {
  const int64_t tokens = options.micro_batch * model.block;
  const int64_t compute = compute_bytes(options.precision);
  const int64_t stream = stream_bytes(options.precision);
  std::vector<SavedTensor> saved;
  add_layers(model, options, tokens, saved);
  saved.push_back({"final.stream", 1, tokens * model.width, stream});
  saved.push_back({"final.norm_statistics", 2, tokens, stream});
  saved.push_back({"final.norm_output", 1, tokens * model.width, compute});
  saved.push_back({"logits", 1, tokens * model.vocabulary, compute});
  return saved;
}

int64_t activation_bytes(const ModelSpec& model, const ActivationOptions& options) {
  int64_t bytes = 0;
  for (const SavedTensor& tensor : saved_tensors(model, options)) bytes += tensor.bytes();
  return bytes;
}

int64_t total_bytes(const std::vector<MemoryLine>& lines) {
  int64_t bytes = 0;
  for (const MemoryLine& line : lines) bytes += line.bytes;
  return bytes;
}

}  // namespace hanji::plan
