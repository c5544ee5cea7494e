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

namespace hanji::models {
namespace {

using compute::Weight;
using torch::nn::Module;

constexpr double kDeviation = 0.02;

struct Block {
  compute::LayerNorm ln_1, ln_2;
  Weight qkv, qkv_bias, out, out_bias;  // attn.c_attn, attn.c_proj
  Weight up, up_bias, down, down_bias;  // mlp.c_fc, mlp.c_proj

  /// In the order of parameters().
  std::vector<Weight*> ordered() {
    return {&ln_1.weight, &ln_1.bias, &qkv, &qkv_bias, &out,  &out_bias,
            &ln_2.weight, &ln_2.bias, &up,  &up_bias,  &down, &down_bias};
  }
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
            {}};
  }

  /// `path` is the full name, which the initial values depend on.
  Weight normal(Module& parent, const std::string& path, at::IntArrayRef sizes,
                double deviation = kDeviation) const {
    auto tensor = at::empty(sizes, dtype());
    fill_normal(tensor, deviation, options_.seed, path);
    return {parent.register_parameter("weight", tensor.to(options_.device)), {}};
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
    return options_.dtype == base::Precision::kFloat64 ? at::kDouble : at::kFloat;
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

/// By role, and in the order of parameters().
struct GptImpl::Parameters {
  Weight token, position, head;  // head is the token embedding again where tied
  std::vector<Block> blocks;
  compute::LayerNorm ln_f;

  /// What a layer reads.
  std::vector<Weight*> of_layer(int64_t index) {
    if (index == 0) return {&token, &position};
    if (index <= std::ssize(blocks)) return blocks[index - 1].ordered();
    return {&ln_f.weight, &ln_f.bias, &head};
  }

  std::vector<Weight*> ordered(bool tied) {
    std::vector<Weight*> all;
    for (int64_t layer = 0; layer < std::ssize(blocks) + 2; ++layer) {
      const std::vector<Weight*> more = of_layer(layer);
      all.insert(all.end(), more.begin(), more.end());
    }
    if (tied) all.pop_back();
    return all;
  }
};

GptImpl::GptImpl(const GptOptions& options)
    : Model("Gpt"), options_(options), parameters_(std::make_unique<Parameters>()) {
  check(options);
  const Builder builder(options_);
  auto& transformer = builder.child(*this, "transformer");
  auto table = [&](const std::string& name, int64_t rows) {
    return builder.normal(builder.child(transformer, name), "transformer." + name + ".weight",
                          {rows, options.width});
  };
  parameters_->token = table("wte", options.vocabulary);
  parameters_->position = table("wpe", options.block);
  auto& list = builder.child(transformer, "h");
  for (int64_t i = 0; i < options.layers; ++i)
    parameters_->blocks.push_back(builder.block(list, i));
  parameters_->ln_f = builder.layer_norm(transformer, "ln_f");
  parameters_->head = options.tied
                          ? parameters_->token
                          : builder.normal(builder.child(*this, "lm_head"), "lm_head.weight",
                                           {options.vocabulary, options.width});
}

GptImpl::~GptImpl() = default;

/// What one forward of one layer needs to know beside the layer's parameters.
class GptImpl::Pass {
 public:
  Pass(const GptOptions& options, bool training, const layers::Batch& batch)
      : options_(options),
        dropped_(training ? options.dropout : 0.0),
        key_{batch.counters.seed, batch.counters.step, batch.positions.begin, 0} {}

  layers::Flow embed(const Parameters& p, const at::Tensor& tokens) const {
    return {compute::dropout(compute::embed(tokens, p.token, p.position), dropped_, key_)};
  }

  layers::Flow block(const Block& b, int64_t index, layers::Flow flow) const {
    compute::DropoutKey key = key_;
    key.layer += 1 + index * num_keys();
    Stream stream = to_stream(std::move(flow));
    auto qkv = compute::linear(normalise(stream, b.ln_1), b.qkv);
    auto mixed = compute::causal_attention(qkv, b.qkv_bias,
                                           {options_.heads, options_.attention, dropped_, key});
    stream.delta = branch(compute::linear(mixed, b.out), b.out_bias, key);
    auto up = compute::linear(normalise(stream, b.ln_2), b.up);
    stream.delta =
        branch(compute::linear(compute::bias_gelu(up, b.up_bias), b.down), b.down_bias, key);
    return to_flow(std::move(stream));
  }

  layers::Flow logits(const Parameters& p, layers::Flow flow) const {
    Stream stream = to_stream(std::move(flow));
    return {compute::linear(normalise(stream, p.ln_f), p.head)};
  }

 private:
  /// A branch whose bias the next normalisation adds, unless dropout stands between.
  struct Stream {
    at::Tensor x;
    compute::Delta delta;
  };

  static Stream to_stream(layers::Flow flow) {
    flow.resize(layers::kMaxFlowTensors);
    return {std::move(flow[0]), {std::move(flow[1]), Weight{std::move(flow[2]), {}}}};
  }

  /// The bias leaves as a value of its own: the next layer sees no parameter of this one.
  static layers::Flow to_flow(Stream stream) {
    layers::Flow flow = {std::move(stream.x), std::move(stream.delta.value)};
    const at::Tensor& bias = stream.delta.bias.value;
    if (bias.defined()) flow.push_back(bias.clone());
    return flow;
  }

  /// Places that drop in one block: attention, and each branch where anything is dropped at all.
  int64_t num_keys() const { return dropped_ == 0 ? 1 : 3; }

  c10::ScalarType dtype(const Weight& weight) const {
    return options_.dtype == base::Precision::kBFloat16 ? at::kBFloat16
                                                        : weight.value.scalar_type();
  }

  at::Tensor normalise(Stream& stream, const compute::LayerNorm& norm) const {
    auto [sum, normed] = compute::add_layer_norm(stream.x, stream.delta, norm, dtype(norm.weight));
    stream.x = std::move(sum);
    return std::move(normed);
  }

  compute::Delta branch(at::Tensor value, const Weight& bias, compute::DropoutKey& key) const {
    if (dropped_ == 0) return {std::move(value), bias};
    ++key.layer;
    return {compute::dropout(value + bias.value, dropped_, key), {}};
  }

  const GptOptions& options_;
  double dropped_;
  compute::DropoutKey key_;
};

layers::Flow GptImpl::layer(int64_t index, layers::Flow flow, const layers::Batch& batch) {
  const Pass pass(options_, is_training(), batch);
  if (index == 0) return pass.embed(*parameters_, batch.inputs);
  if (index == num_layers() - 1) return pass.logits(*parameters_, std::move(flow));
  return pass.block(parameters_->blocks[index - 1], index - 1, std::move(flow));
}

std::vector<at::Tensor> GptImpl::layer_parameters(int64_t index) const {
  std::vector<at::Tensor> read;
  for (const Weight* weight : parameters_->of_layer(index)) read.push_back(weight->value);
  return read;
}

layers::LossSum GptImpl::loss(layers::Flow flow, const layers::Batch& batch) {
  return {compute::cross_entropy_sum(flow.at(0).view({-1, options_.vocabulary}),
                                     batch.targets.reshape({-1})),
          batch.num_valid};
}

void GptImpl::set_gradient_slots(std::vector<at::Tensor> slots) {
  auto weights = parameters_->ordered(options_.tied);
  if (!slots.empty() && slots.size() != weights.size()) {
    throw Error(base::invalid_argument("gpt: " + std::to_string(slots.size()) +
                                       " gradient slots for " + std::to_string(weights.size()) +
                                       " parameters; pass one for each, or none"));
  }
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i]->slot = slots.empty() ? at::Tensor() : slots[i];
  if (options_.tied) parameters_->head.slot = parameters_->token.slot;
}

std::shared_ptr<layers::Model> make_gpt(const GptOptions& options) {
  return std::make_shared<GptImpl>(options);
}

int64_t num_parameters(const GptOptions& o) {
  const int64_t c = o.width;
  return o.vocabulary * c * (o.tied ? 1 : 2) + o.block * c + o.layers * (12 * c * c + 13 * c) +
         2 * c;
}

}  // namespace hanji::models
