#include "hanji/plan/memory.h"

#include <algorithm>

#include "hanji/base/scratch_file.h"

namespace hanji::plan {
namespace {

struct Widths {
  int64_t product = 4;  ///< Bytes of what products read and write.
  int64_t stream = 4;   ///< Bytes of the residual stream and of row statistics.
};

Widths widths_of(Precision precision) {
  switch (precision) {
    case Precision::kFloat64: return {8, 8};
    case Precision::kBFloat16: return {2, 4};
    case Precision::kFloat32: return {4, 4};
  }
  return {};
}

/// Whether products make copies of their weights, which live until their backward.
bool casts_weights(const ActivationOptions& options) {
  return options.casts && options.precision == Precision::kBFloat16;
}

/// What dropout keeps in one layer: a mask per branch, and the plain attention that it takes keeps
/// squares: probabilities (softmax), mask (dropout) and dropped probabilities (product with v).
void add_dropout(const ModelSpec& m, const ActivationOptions& options,
                 std::vector<SavedTensor>& saved) {
  const Widths widths = widths_of(options.precision);
  const int64_t tokens = options.micro_batch * m.block;
  const int64_t squares = options.micro_batch * m.heads * m.block * m.block;
  saved.push_back({"layer.branch_masks", 2 * m.layers, tokens * m.width, widths.product});
  saved.push_back({"layer.attention_squares", 3 * m.layers, squares, widths.product});
}

/// What blocks keep from forward to backward, or for as long as their own backward takes.
std::vector<SavedTensor> saved_in_blocks(const ModelSpec& m, const ActivationOptions& options) {
  const Widths widths = widths_of(options.precision);
  const int64_t tokens = options.micro_batch * m.block;
  const int64_t wide = tokens * m.width, keys = tokens * m.kv_width();
  const int64_t num_norms = 2 * m.layers;
  std::vector<SavedTensor> saved = {
      {"norm.sum", num_norms, wide, widths.stream},               // the stream, by add_layer_norm
      {"norm.statistics", 2 * num_norms, tokens, widths.stream},  // mean and 1/deviation of rows
      {"norm.output", num_norms, wide, widths.product},           // by linear: qkv, up
      {"layer.qkv", m.layers, wide + 2 * keys, widths.product},   // by attention, bias added
      {"layer.attention", m.layers, wide, widths.product},        // by attention and linear: out
      {"layer.up", m.layers, 4 * wide, widths.product},           // by bias_gelu
      {"layer.gelu", m.layers, 4 * wide, widths.product},         // by linear: down
  };
  if (casts_weights(options)) {
    const int64_t weights = 12 * m.width * m.width - 2 * (m.width - m.kv_width()) * m.width;
    saved.push_back({"layer.casts", m.layers, weights, widths.product});
  }
  if (m.dropout > 0) {
    add_dropout(m, options, saved);
  } else {
    // Both kernels recompute the probabilities from the logarithms of the rows' sums.
    saved.push_back({"layer.log_sums", m.layers, tokens * m.heads, widths.stream});
  }
  return saved;
}

/// What parallel::checkpointed() keeps of each block: the stream and the output of the last branch,
/// which the first block has not.
std::vector<SavedTensor> inputs_of_blocks(const ModelSpec& m, const ActivationOptions& options) {
  const Widths widths = widths_of(options.precision);
  const int64_t wide = options.micro_batch * m.block * m.width;
  return {{"block.stream", m.layers, wide, widths.stream},
          {"block.branch", m.layers - 1, wide, widths.product}};
}

int64_t casts_of_head_and_down(const ModelSpec& m, const ActivationOptions& options) {
  const int64_t weights = m.vocabulary * m.width + 4 * m.width * m.width;
  return casts_weights(options) ? weights * widths_of(options.precision).product : 0;
}

int64_t sum_of(const std::vector<SavedTensor>& saved) {
  int64_t bytes = 0;
  for (const SavedTensor& tensor : saved) bytes += tensor.bytes();
  return bytes;
}

/// In the last block's GELU, where its tensors are there again: they, the block's output and the
/// gradients of both its outputs, of GELU's output and input; logits, the last norm, the input of
/// down and the casts of head and down are gone.
int64_t workspace_of_recomputed_block(const ModelSpec& m, const ActivationOptions& options) {
  const Widths widths = widths_of(options.precision);
  const int64_t tokens = options.micro_batch * m.block;
  const int64_t wide = tokens * m.width;
  ModelSpec one = m;
  one.layers = 1;
  const int64_t grown = sum_of(saved_in_blocks(one, options)) +
                        wide * (widths.stream + (1 + 1 + 8 - 4) * widths.product);
  const int64_t gone =
      tokens * m.vocabulary * widths.product + wide * (widths.stream + widths.product);
  return grown - gone - casts_of_head_and_down(m, options);
}

}  // namespace

std::vector<SavedTensor> saved_tensors(const ModelSpec& m, const ActivationOptions& options) {
  const Widths widths = widths_of(options.precision);
  const int64_t tokens = options.micro_batch * m.block;
  const int64_t wide = tokens * m.width;
  std::vector<SavedTensor> saved =
      options.recompute ? inputs_of_blocks(m, options) : saved_in_blocks(m, options);
  if (m.dropout > 0) saved.push_back({"embedding.mask", 1, wide, widths.stream});
  saved.push_back({"last_norm.sum", 1, wide, widths.stream});
  saved.push_back({"last_norm.statistics", 2, tokens, widths.stream});
  saved.push_back({"last_norm.output", 1, wide, widths.product});  // by linear: head
  if (casts_weights(options)) {
    saved.push_back({"head.cast", 1, m.vocabulary * m.width, widths.product});
  }
  // By cross_entropy, then its gradient.
  saved.push_back({"logits", 1, tokens * m.vocabulary, widths.product});
  return saved;
}

int64_t workspace_in_head(const ModelSpec& m, const ActivationOptions& options) {
  const Widths widths = widths_of(options.precision);
  const int64_t tokens = options.micro_batch * m.block;
  // The gradient of the last norm's output, beside everything saved.
  const int64_t in_head = tokens * m.width * widths.product;
  // On a GPU libtorch's loss keeps what it made of the logits, beside their gradient.
  const int64_t in_loss = options.device == Device::kCuda
                              ? tokens * m.vocabulary * (widths.product + widths.stream)
                              : 0;
  return std::max(in_head, in_loss);
}

int64_t workspace_in_block(const ModelSpec& m, const ActivationOptions& options) {
  if (options.recompute) return workspace_of_recomputed_block(m, options);
  const Widths widths = widths_of(options.precision);
  const int64_t tokens = options.micro_batch * m.block;
  const int64_t wide = tokens * m.width;
  // In the last block's GELU: gradients of the stream and of GELU's output and input; by then the
  // last norm's stream, the logits, the inputs of head and down and their casts are gone.
  return (8 - 4 - 1) * wide * widths.product - tokens * m.vocabulary * widths.product -
         casts_of_head_and_down(m, options);
}

int64_t beside_attention(const ModelSpec& m, const ActivationOptions& options) {
  const Widths widths = widths_of(options.precision);
  const int64_t tokens = options.micro_batch * m.block;
  const int64_t wide = tokens * m.width, qkv = wide + 2 * tokens * m.kv_width();
  const int64_t row = m.width + 2 * m.kv_width();  // each sample's sum of qkv's bias
  const int64_t gradients = wide * (widths.stream + widths.product) + qkv * widths.product +
                            options.micro_batch * row * widths.stream;
  // Inputs of down, GELU and up, the second norm's stream and statistics, the output of attention.
  const int64_t given_up =
      (4 + 4 + 1 + 1) * wide * widths.product + wide * widths.stream + 2 * tokens * widths.stream;
  const int64_t casts =
      casts_weights(options) ? (4 + 4 + 1) * m.width * m.width * widths.product : 0;
  ModelSpec one = m;
  one.layers = 1;
  const int64_t computed_again =
      options.recompute ? sum_of(saved_in_blocks(one, options)) : int64_t{0};
  return gradients + computed_again - given_up - casts;
}

int64_t total_bytes(const std::vector<MemoryLine>& lines) {
  int64_t bytes = 0;
  for (const MemoryLine& line : lines) bytes += line.bytes;
  return bytes;
}

int64_t line_bytes(const std::vector<MemoryLine>& lines, std::string_view category) {
  const auto found = std::ranges::find(lines, category, &MemoryLine::category);
  return found == lines.end() ? 0 : found->bytes;
}

int64_t offload_window_bytes(int64_t elements, int64_t element_bytes) {
  const int64_t piece = std::min(elements, kOffloadPieceElements);
  const int64_t num_pieces = (elements + kOffloadPieceElements - 1) / kOffloadPieceElements;
  return std::min<int64_t>(num_pieces, kOffloadWindows) * 2 *
         base::whole_blocks(piece * element_bytes);
}

int64_t most_copied(const OffloadConfig& offload) {
  constexpr int64_t kPiece = int64_t{64} << 20;
  return offload.optimizer == Place::kFile ? kPiece : INT64_MAX;
}

bool stays_on_host(std::string_view category) {
  return category == "checkpoint copy" || category == "data";
}

int64_t device_bytes(const std::vector<MemoryLine>& lines) {
  int64_t bytes = 0;
  for (const MemoryLine& line : lines) bytes += stays_on_host(line.category) ? 0 : line.bytes;
  return bytes;
}

}  // namespace hanji::plan
