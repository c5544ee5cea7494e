#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "hanji/compute/kernels.h"

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
  compute::Dtype dtype = compute::Dtype::kFloat32;  ///< kBFloat16 keeps fp32 parameters.
  compute::Attention attention = compute::Attention::kMath;
  c10::Device device = c10::kCPU;  ///< Of the parameters, and of the tokens that they are given.
  bool recompute = false;  ///< Blocks keep their inputs alone; backward computes the rest again.
};

/// What dropout masks depend on, beside layer and element.
struct Counters {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sample = 0;  ///< Number, within the whole step, of the first row of the batch.
};

/// A pre-norm GPT: learned positions, causal attention, tanh GELU, biases everywhere but in the
/// head; parameters named as in nanoGPT, weights [outputs, inputs], initialised as GPT-2.
///
/// Result  initial values depend on (seed, parameter name, element) alone; normal with deviation
///         0.02, and 0.02/sqrt(2 layers) for both projections into the residual stream. They and
///         the dropout masks are made on the CPU, and the same on every device.
/// Thread  one at a time per model.
/// Source  Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
class GptImpl : public torch::nn::Module {
 public:
  /// Errors  throws invalid_argument for sizes below 1, width not a multiple of heads, dropout
  ///         outside [0, 1).
  explicit GptImpl(const GptOptions& options);
  ~GptImpl() override;

  /// Shape   tokens [B, T] int64, T at most block -> logits [B, T, vocabulary] (bf16 under bf16).
  at::Tensor forward(const at::Tensor& tokens);

  /// The sum, not the mean, of the token losses in fp32 (fp64 under fp64).
  ///
  /// Shape   tokens and targets [B, T] int64 -> scalar; targets of -1 do not count.
  /// Cost    forward writes the gradient of the logits over them: call backward() at most once.
  at::Tensor loss_sum(const at::Tensor& tokens, const at::Tensor& targets);

  /// The next forward's dropout masks; only read in training mode with dropout above 0.
  void set_counters(const Counters& counters);

  /// Memory, in the order of parameters(), into which backward may write a parameter's gradient
  /// while its .grad is undefined; .grad then shares it and needs no copy. Empty: none.
  ///
  /// Shape   as the parameter, contiguous, same dtype.
  void set_gradient_slots(std::vector<at::Tensor> slots);

  /// Bytes of the copies of weights that products under bf16 take; 0 before the first of them.
  int64_t cast_bytes() const;

  const GptOptions& options() const;

 private:
  struct Layers;
  at::Tensor hidden(const at::Tensor& tokens);

  GptOptions options_;
  Counters counters_;
  std::unique_ptr<Layers> layers_;
};

/// V*C + T*C + L*(12*C*C + 13*C) + 2*C, and V*C more for an untied head.
int64_t num_parameters(const GptOptions& options);

}  // namespace hanji::models
