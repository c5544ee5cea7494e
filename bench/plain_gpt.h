#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <string>
#include <utility>

#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/fsdp/unit.h"

/// The GPT of bench/peer_gpt.py in torch::nn's own modules: the same names, shapes and operations.
namespace plain_gpt {

namespace nn = torch::nn;

struct Sizes {
  int64_t layers, heads, width, block, vocabulary, batch;
};

struct AttentionImpl : nn::Module {
  AttentionImpl(int64_t width, int64_t heads)
      : c_attn(register_module("c_attn", nn::Linear(width, 3 * width))),
        c_proj(register_module("c_proj", nn::Linear(width, width))),
        heads(heads) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto B = x.size(0), T = x.size(1), C = x.size(2);
    auto parts = c_attn(x).split(C, 2);
    for (auto& part : parts) part = part.view({B, T, heads, C / heads}).transpose(1, 2);
    const auto y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    return c_proj(y.transpose(1, 2).contiguous().view({B, T, C}));
  }
  nn::Linear c_attn, c_proj;
  int64_t heads;
};
TORCH_MODULE(Attention);

struct MlpImpl : nn::Module {
  explicit MlpImpl(int64_t width)
      : c_fc(register_module("c_fc", nn::Linear(width, 4 * width))),
        c_proj(register_module("c_proj", nn::Linear(4 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) { return c_proj(at::gelu(c_fc(x), "tanh")); }
  nn::Linear c_fc, c_proj;
};
TORCH_MODULE(Mlp);

inline nn::LayerNorm norm(int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

struct BlockImpl : nn::Module {
  BlockImpl(int64_t width, int64_t heads)
      : ln_1(register_module("ln_1", norm(width))),
        ln_2(register_module("ln_2", norm(width))),
        attn(register_module("attn", Attention(width, heads))),
        mlp(register_module("mlp", Mlp(width))) {}
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = input + attn(ln_1(input));
    return x + mlp(ln_2(x));
  }
  nn::LayerNorm ln_1, ln_2;
  Attention attn;
  Mlp mlp;
};
TORCH_MODULE(Block);

/// Tied to the embedding at its end; every block is called as a unit, or keeps its input alone.
struct Gpt : nn::Module {
  explicit Gpt(const Sizes& sizes, bool recomputes = false) : recomputes(recomputes) {
    auto transformer = register_module("transformer", std::make_shared<nn::Module>("transformer"));
    const auto add = [&](const char* name, auto module) {
      return transformer->register_module(name, module);
    };
    wte = add("wte", nn::Embedding(sizes.vocabulary, sizes.width));
    wpe = add("wpe", nn::Embedding(sizes.block, sizes.width));
    h = add("h", nn::ModuleList());
    for (int64_t i = 0; i < sizes.layers; ++i) h->push_back(Block(sizes.width, sizes.heads));
    ln_f = add("ln_f", norm(sizes.width));
  }
  /// The mean loss of `tokens` [batch, time] against `targets`, which follow them by one.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets) {
    at::Tensor x = wte(tokens) + wpe(at::arange(tokens.size(1)));
    for (const auto& module : *h) {
      auto& block = *module->as<Block>();
      const auto forward = [&block](const at::Tensor& input) { return block.forward(input); };
      x = recomputes ? hanji::parallel::checkpointed(forward, x) : hanji::parallel::unit(block)(x);
    }
    const auto logits = at::linear(ln_f(x), wte->weight);
    return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), targets.reshape({-1}));
  }
  nn::Embedding wte{nullptr}, wpe{nullptr};
  nn::ModuleList h{nullptr};
  nn::LayerNorm ln_f{nullptr};
  bool recomputes;
};

/// Tokens and targets of one rank's part of a step: batch() of bench/peer_gpt.py, a hash of the
/// position in the run.
inline std::pair<at::Tensor, at::Tensor> make_batch(int64_t step, int rank, int ranks,
                                                    const Sizes& sizes) {
  const int64_t count = sizes.batch * (sizes.block + 1);
  const auto index = at::arange(count) + (step * ranks + rank) * count;
  const auto tokens = index.mul(2654435761)
                          .bitwise_and(0xFFFFFFFF)
                          .bitwise_right_shift(7)
                          .remainder(sizes.vocabulary)
                          .view({sizes.batch, sizes.block + 1});
  return {tokens.narrow(1, 0, sizes.block).contiguous(),
          tokens.narrow(1, 1, sizes.block).contiguous()};
}

/// By "zero1", "zero2", or with its blocks as units "fully", "lens" (which finds them), "gathered"
/// (parameters not shared on the host) and "mixed" (computed with in bfloat16).
inline hanji::parallel::Sharded shard(nn::Module& net, const hanji::comm::Group& group,
                                      const std::string& strategy) {
  using namespace hanji::parallel;
  if (strategy == "zero1") return shard_optimizer(net, group);
  if (strategy == "zero2") {
    return shard_optimizer(net, group, {.whole_gradients = WholeGradients::kFreed});
  }
  FullyShardOptions options{.units = units_of_type<BlockImpl>()};
  if (strategy == "lens") options.calls = UnitCalls::kLens;
  options.sharding.share_memory = strategy != "gathered";
  if (strategy == "mixed") {
    options.sharding.precision = {
        .param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat, .output_dtype = at::kFloat};
  }
  return fully_shard(net, group, options);
}

}  // namespace plain_gpt
