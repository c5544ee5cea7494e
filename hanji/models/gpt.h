#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "hanji/base/kernel_choice.h"
#include "hanji/layers/model.h"
#include "hanji/layout/context.h"
#include "hanji/parallel/tensor/axis.h"

namespace hanji::models {

struct GptOptions {
  int64_t layers = 6;
  int64_t heads = 6;
  int64_t width = 384;
  int64_t block = 256;
  int64_t vocabulary = 256;
  double dropout = 0.0;  ///< After the embedding, on attention weights and before each addition.
  bool tied = true;      ///< The head multiplies by the token embedding.
  uint64_t seed = 1;     ///< Of the initial values.
  base::Precision dtype = base::Precision::kFloat32;  ///< kBFloat16 keeps fp32 parameters.
  base::Attention attention = base::Attention::kMath;
  c10::Device device = c10::kCPU;  ///< Of the parameters, and of the tokens that they are given.
  int64_t kv_heads = 0;            ///< Heads of keys and values, a divisor of heads; 0: as many.
  /// Cuts heads, hidden features and vocabulary, as cut() says; parts may be uneven. In blocks, each is
  /// computed so, on one rank too.
  parallel::tensor::Axis axis = {};
  bool sequence = false;       ///< On the axis the residual stream is cut by tokens.
  bool moves_weights = false;  ///< On the axis an MLP gathers weights for the rows of each rank.
  /// Above 1: gradients of parameters that every token meets are summed in so many blocks of tokens,
  /// each alone, and then by the tree of grains. The bits of one sample are then those of any axis.
  int token_blocks = 1;
  std::vector<layout::Range> own_layers = {};  ///< As MakeOptions::layers.
  /// Whose ranks have parts of the tokens of each sample with targets, and all parameters.
  parallel::tensor::Axis context = {};
  layout::ContextWay context_way = layout::ContextWay::kUlysses;
};

/// A pre-norm GPT: learned positions, causal attention, tanh GELU, biases everywhere but in the
/// head; parameters named as in nanoGPT, weights [outputs, inputs], initialised as GPT-2.
///
/// Result  initial values depend on (seed, parameter name, element of the whole parameter) alone;
///         normal with deviation 0.02, and 0.02/sqrt(2 layers) for both projections into the residual
///         stream. They and the dropout masks are made on the CPU, and the same on every device.
/// Order   on an axis of several ranks, layers and their backward are collectives of the axis.
///         With `context`, flows, logits and losses are those of this rank's tokens.
/// Layers  the embeddings; each block; the last norm with the head. The flow is the residual stream,
///         then the last branch and its bias, which the next norm adds on its way (under dropout the
///         branch has its bias already).
/// Source  Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
class GptImpl : public layers::Model {
 public:
  /// Errors  throws invalid_argument for sizes below 1, width not a multiple of heads, heads not one
  ///         of kv_heads, dropout outside [0, 1), an axis of more ranks or blocks than heads of keys,
  ///         or of more blocks than the vocabulary has of 16 columns; an axis in blocks whose
  ///         weights move.
  explicit GptImpl(const GptOptions& options);
  ~GptImpl() override;

  int64_t num_layers() const override { return options_.layers + 2; }

  /// Shape   batch.inputs [B, T] int64, T at most block; the last flow is the logits [B, T,
  ///         vocabulary] (bf16 under bf16), of this rank's part of the vocabulary. Of a batch without
  ///         targets they are those of the last token, [B, 1, vocabulary], whole on every rank.
  layers::Flow layer(int64_t index, layers::Flow flow, const layers::Batch& batch) override;

  /// Shape   batch.targets [B, T] int64; targets of -1 do not count.
  /// Cost    writes the gradient of the logits over them.
  layers::LossSum loss(layers::Flow flow, const layers::Batch& batch) override;

  layout::Range recomputed_layers() const override { return {1, options_.layers + 1}; }
  std::vector<at::Tensor> layer_parameters(int64_t index) const override;
  layout::Cut cut() const override;
  void set_gradient_slots(std::vector<at::Tensor> slots) override;
  /// Those of whole products; blocks of features or tokens, and weights that move, are cast where they are used.
  std::vector<bool> rounded_parameters() const override;
  void set_rounded_parameters(std::vector<at::Tensor> rounded) override;

  const GptOptions& options() const { return options_; }

 private:
  struct Parameters;
  template <class Placement>
  class Pass;

  GptOptions options_;
  parallel::tensor::Axis rows_;     ///< The axis of the stream, in blocks of tokens.
  parallel::tensor::Axis context_;  ///< That of samples' tokens, in the same.
  std::unique_ptr<Parameters> parameters_;
};

/// The model for callers that know it as a list of layers.
std::shared_ptr<layers::Model> make_gpt(const GptOptions& options);

}  // namespace hanji::models
