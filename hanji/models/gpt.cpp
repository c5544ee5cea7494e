#include "hanji/models/gpt.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>

#include "hanji/base/status.h"
#include "hanji/compute/attention.h"
#include "hanji/compute/cross_entropy.h"
#include "hanji/compute/embedding.h"
#include "hanji/compute/gelu.h"
#include "hanji/compute/layer_norm.h"
#include "hanji/compute/linear.h"
#include "hanji/models/internal/initial.h"
#include "hanji/parallel/checkpointed.h"

namespace hanji::models {
namespace {

using compute::Weight;
using torch::nn::Module;

constexpr double kDeviation = 0.02;

struct Block {
  compute::LayerNorm ln_1, ln_2;
  Weight qkv, qkv_bias, out, out_bias;  // attn.c_attn, attn.c_proj
  Weight up, up_bias, down, down_bias;  // mlp.c_fc, mlp.c_proj
};

/// Registers parameters under GPT-2's names and fills them.
class Builder {
 public:
  explicit Builder(const GptOptions& options) : options_(options) {}

  Module& child(Module& parent, const std::string& name) const {
    return *parent.register_module(name, std::make_shared<Module>());
  }

  Weight constant(Module& parent, const std::string& name, int64_t size, double value) const {
    return {parent.register_parameter(name, at::full({size}, value, dtype()).to(options_.device)),
            {},
            {}};
  }

  /// `path` is the full name, which the initial values depend on.
  Weight normal(Module& parent, const std::string& path, at::IntArrayRef sizes,
                double deviation = kDeviation) const {
    auto tensor = at::empty(sizes, dtype());
    fill_normal(tensor, deviation, options_.seed, path);
    return {parent.register_parameter("weight", tensor.to(options_.device)), {}, {}};
  }

  compute::LayerNorm layer_norm(Module& parent, const std::string& name) const {
    auto& module = child(parent, name);
    return {constant(module, "weight", options_.width, 1),
            constant(module, "bias", options_.width, 0)};
  }

  Block block(Module& list, int64_t index) const {
    const int64_t width = options_.width;
    const std::string name = std::to_string(index);
    const std::string path = "transformer.h." + name + ".";
    const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(options_.layers));
    auto& module = child(list, name);
    Block block;
    auto linear = [&](Module& parent, const std::string& part, int64_t outputs, int64_t inputs,
                      double deviation, Weight& bias) {
      auto& own = child(parent, part.substr(part.find('.') + 1));
      auto weight = normal(own, path + part + ".weight", {outputs, inputs}, deviation);
      bias = constant(own, "bias", outputs, 0);
      return weight;
    };
    block.ln_1 = layer_norm(module, "ln_1");
    auto& attention = child(module, "attn");
    block.qkv = linear(attention, "attn.c_attn", 3 * width, width, kDeviation, block.qkv_bias);
    block.out = linear(attention, "attn.c_proj", width, width, residual, block.out_bias);
    block.ln_2 = layer_norm(module, "ln_2");
    auto& mlp = child(module, "mlp");
    block.up = linear(mlp, "mlp.c_fc", 4 * width, width, kDeviation, block.up_bias);
    block.down = linear(mlp, "mlp.c_proj", width, 4 * width, residual, block.down_bias);
    return block;
  }

 private:
  at::TensorOptions dtype() const {
    return options_.dtype == compute::Dtype::kFloat64 ? at::kDouble : at::kFloat;
  }

  const GptOptions& options_;
};

void check(const GptOptions& o) {
  const bool positive =
      o.layers > 0 && o.heads > 0 && o.width > 0 && o.block > 0 && o.vocabulary > 0;
  if (positive && o.width % o.heads == 0 && o.dropout >= 0 && o.dropout < 1) return;
  throw Error(base::invalid_argument(
      "gpt: layers " + std::to_string(o.layers) + ", heads " + std::to_string(o.heads) +
      ", width " + std::to_string(o.width) + ", block " + std::to_string(o.block) +
      ", vocabulary " + std::to_string(o.vocabulary) + ", dropout " + std::to_string(o.dropout) +
      ": sizes are at least 1, width is a multiple of heads, dropout lies in [0, 1)"));
}

}  // namespace

/// The parameters by role, and in the order of parameters().
struct GptImpl::Layers {
  Weight token, position, head;  // head is the token embedding again where tied
  std::vector<Block> blocks;
  compute::LayerNorm ln_f;

  std::vector<Weight*> ordered(bool tied) {
    std::vector<Weight*> all{&token, &position};
    for (auto& b : blocks) {
      for (Weight* w : {&b.ln_1.weight, &b.ln_1.bias, &b.qkv, &b.qkv_bias, &b.out, &b.out_bias,
                        &b.ln_2.weight, &b.ln_2.bias, &b.up, &b.up_bias, &b.down, &b.down_bias}) {
        all.push_back(w);
      }
    }
    all.push_back(&ln_f.weight);
    all.push_back(&ln_f.bias);
    if (!tied) all.push_back(&head);
    return all;
  }

  /// bf16 copies of everything that is multiplied by.
  void cast_products() {
    at::NoGradGuard no_grad;
    auto cast = [](Weight& w) {
      if (!w.cast.defined())
        w.cast =
            at::empty(w.value.sizes(), w.value.options().dtype(at::kBFloat16).requires_grad(false));
      w.cast.copy_(w.value);
    };
    for (auto& b : blocks) {
      for (Weight* w : {&b.qkv, &b.out, &b.up, &b.down}) cast(*w);
    }
    cast(head);
  }
};

GptImpl::GptImpl(const GptOptions& options)
    : Module("Gpt"), options_(options), layers_(std::make_unique<Layers>()) {
  check(options);
  const Builder builder(options_);
  auto& transformer = builder.child(*this, "transformer");
  auto table = [&](const std::string& name, int64_t rows) {
    return builder.normal(builder.child(transformer, name), "transformer." + name + ".weight",
                          {rows, options.width});
  };
  layers_->token = table("wte", options.vocabulary);
  layers_->position = table("wpe", options.block);
  auto& list = builder.child(transformer, "h");
  for (int64_t i = 0; i < options.layers; ++i) layers_->blocks.push_back(builder.block(list, i));
  layers_->ln_f = builder.layer_norm(transformer, "ln_f");
  layers_->head = options.tied ? layers_->token
                               : builder.normal(builder.child(*this, "lm_head"), "lm_head.weight",
                                                {options.vocabulary, options.width});
}

GptImpl::~GptImpl() = default;

int64_t GptImpl::cast_bytes() const {
  int64_t bytes = 0;
  // A tied head has a copy of its own.
  for (const Weight* w : layers_->ordered(false)) {
    if (w->cast.defined()) bytes += static_cast<int64_t>(w->cast.nbytes());
  }
  return bytes;
}

namespace {

/// The blocks of one forward.
class Pass {
 public:
  Pass(const GptOptions& options, double dropped, at::ScalarType dtype)
      : options_(options), dropped_(dropped), dtype_(dtype) {}

  /// A branch whose bias the next normalisation adds, unless dropout stands between.
  struct Stream {
    at::Tensor x;
    compute::Delta delta;
  };

  /// Places that drop in one block: attention, and each branch where anything is dropped at all.
  int64_t num_keys() const { return dropped_ == 0 ? 1 : 3; }

  at::Tensor normalise(Stream& stream, const compute::LayerNorm& norm) const {
    auto [sum, normed] = compute::add_layer_norm(stream.x, stream.delta, norm, dtype_);
    stream.x = std::move(sum);
    return std::move(normed);
  }

  Stream run(const Block& b, Stream stream, compute::DropoutKey key) const {
    auto qkv = compute::linear(normalise(stream, b.ln_1), b.qkv);
    ++key.layer;
    auto mixed = compute::causal_attention(qkv, b.qkv_bias,
                                           {options_.heads, options_.attention, dropped_, key});
    stream.delta = branch(compute::linear(mixed, b.out), b.out_bias, key);
    auto up = compute::linear(normalise(stream, b.ln_2), b.up);
    stream.delta =
        branch(compute::linear(compute::bias_gelu(up, b.up_bias), b.down), b.down_bias, key);
    return stream;
  }

  /// The same, of which `stream` alone is kept until backward. Before the first block there is no
  /// branch to add.
  Stream run_twice(const Block& b, const Stream& stream, compute::DropoutKey key) const {
    const auto again = [pass = *this, &b, key, bias = stream.delta.bias](
                           const std::vector<at::Tensor>& inputs) -> std::vector<at::Tensor> {
      Stream out = pass.run(b, {inputs[0], {inputs[1], bias}}, key);
      return {std::move(out.x), std::move(out.delta.value)};
    };
    auto outputs = parallel::checkpointed_all(again, {stream.x, stream.delta.value});
    return {std::move(outputs[0]), {std::move(outputs[1]), dropped_ == 0 ? b.down_bias : Weight{}}};
  }

 private:
  compute::Delta branch(at::Tensor value, const Weight& bias, compute::DropoutKey& key) const {
    if (dropped_ == 0) return {std::move(value), bias};
    ++key.layer;
    return {compute::dropout(value + bias.value, dropped_, key), {}};
  }

  const GptOptions& options_;
  double dropped_;
  at::ScalarType dtype_;
};

}  // namespace

at::Tensor GptImpl::hidden(const at::Tensor& tokens) {
  const bool bf16 = options_.dtype == compute::Dtype::kBFloat16;
  const double dropped = is_training() ? options_.dropout : 0.0;
  compute::DropoutKey key{counters_.seed, counters_.step, counters_.first_sample, 0};
  auto& layers = *layers_;
  if (bf16) layers.cast_products();
  const Pass pass(options_, dropped, bf16 ? at::kBFloat16 : layers.token.value.scalar_type());
  Pass::Stream stream{
      compute::dropout(compute::embed(tokens, layers.token, layers.position), dropped, key), {}};
  for (const Block& block : layers.blocks) {
    stream = options_.recompute ? pass.run_twice(block, stream, key)
                                : pass.run(block, std::move(stream), key);
    key.layer += pass.num_keys();
  }
  return pass.normalise(stream, layers.ln_f);
}

at::Tensor GptImpl::forward(const at::Tensor& tokens) {
  auto normed = hidden(tokens);
  return compute::linear(normed, layers_->head);
}

at::Tensor GptImpl::loss_sum(const at::Tensor& tokens, const at::Tensor& targets) {
  return compute::cross_entropy_sum(forward(tokens).view({-1, options_.vocabulary}),
                                    targets.reshape({-1}));
}

void GptImpl::set_counters(const Counters& counters) { counters_ = counters; }

void GptImpl::set_gradient_slots(std::vector<at::Tensor> slots) {
  auto weights = layers_->ordered(options_.tied);
  if (!slots.empty() && slots.size() != weights.size()) {
    throw Error(base::invalid_argument("gpt: " + std::to_string(slots.size()) +
                                       " gradient slots for " + std::to_string(weights.size()) +
                                       " parameters; pass one for each, or none"));
  }
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i]->slot = slots.empty() ? at::Tensor() : slots[i];
  if (options_.tied) layers_->head.slot = layers_->token.slot;
}

const GptOptions& GptImpl::options() const { return options_; }

int64_t num_parameters(const GptOptions& o) {
  const int64_t c = o.width;
  return o.vocabulary * c * (o.tied ? 1 : 2) + o.block * c + o.layers * (12 * c * c + 13 * c) +
         2 * c;
}

}  // namespace hanji::models
