#include "hanji/models/gpt.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/models/internal/initial.h"
#include "hanji/parallel/context/attention.h"
#include "hanji/parallel/context/places.h"
#include "hanji/parallel/tensor/attention.h"
#include "hanji/parallel/tensor/blocks.h"
#include "hanji/parallel/tensor/dropout.h"
#include "hanji/parallel/tensor/embedding.h"
#include "hanji/parallel/tensor/gathered_linear.h"
#include "hanji/parallel/tensor/linear.h"
#include "hanji/parallel/tensor/loss.h"
#include "hanji/parallel/tensor/norm.h"
#include "hanji/parallel/tensor/regions.h"

namespace hanji::models {
namespace {

namespace context = parallel::context;
using compute::Weight;
using parallel::tensor::Axis;
using parallel::tensor::Broadcast;
using parallel::tensor::FeatureBlocksPtr;
using parallel::tensor::Features;
using parallel::tensor::Parameter;
using parallel::tensor::Partial;
using parallel::tensor::Replicated;
using parallel::tensor::RowParameter;
using parallel::tensor::Sharded;
using parallel::tensor::Tokens;
using parallel::tensor::Typed;
using torch::nn::Module;
using Norm = parallel::tensor::LayerNorm<Replicated>;

constexpr double kDeviation = 0.02;
constexpr int64_t kBlockUnit = 16;  ///< Columns that no block of features parts.

/// Elements of a token's keys, or values.
int64_t kv_width(const GptOptions& o) {
  return o.kv_heads == 0 ? o.width : o.width / o.heads * o.kv_heads;
}

struct Block {
  Norm ln_1, ln_2;
  Parameter<Sharded<0>> qkv, qkv_bias;  // attn.c_attn
  Parameter<Sharded<1>> out;            // attn.c_proj
  Parameter<Replicated> out_bias;
  Parameter<Sharded<0>> up, up_bias;  // mlp.c_fc
  Parameter<Sharded<1>> down;         // mlp.c_proj
  Parameter<Replicated> down_bias;

  /// In the order of parameters().
  std::vector<Weight*> ordered() {
    return {&ln_1.weight.weight, &ln_1.bias.weight, &qkv.weight,         &qkv_bias.weight,
            &out.weight,         &out_bias.weight,  &ln_2.weight.weight, &ln_2.bias.weight,
            &up.weight,          &up_bias.weight,   &down.weight,        &down_bias.weight};
  }
};

/// Of hidden features and of the vocabulary.
int64_t unit_of(const Axis& axis) { return axis.num_blocks() > 1 ? kBlockUnit : 1; }

/// Heads of keys and values are whole on a rank, and with them those of queries and their columns.
layout::PlacementTable placements_of(const GptOptions& o) {
  const int64_t width = o.width, keys = kv_width(o), head = o.width / o.heads;
  const int64_t unit = unit_of(o.axis);
  const int blocks = o.axis.num_blocks();
  return {{"*.wte.weight", {0, {o.vocabulary}, unit, blocks}},
          {"lm_head.weight", {0, {o.vocabulary}, unit, blocks}},
          {"*.attn.c_attn.*", {0, {width, keys, keys}, head, blocks}},
          {"*.attn.c_proj.weight", {1, {width}, head * (width / keys), blocks}},
          {"*.mlp.c_fc.*", {0, {4 * width}, unit, blocks}},
          {"*.mlp.c_proj.weight", {1, {4 * width}, unit, blocks}},
          {"*", {}}};
}

parallel::tensor::Extents vocabulary_extents(const GptOptions& o) {
  return o.axis.extents_of(o.vocabulary, unit_of(o.axis));
}

/// Registers this rank's parts of parameters under GPT-2's names and fills them.
class Builder {
 public:
  explicit Builder(const GptOptions& options)
      : options_(options), placements_(placements_of(options)) {}

  /// The layers that read what follows.
  void begin_layers(std::initializer_list<int64_t> layers) {
    is_here_ = is_own(options_.own_layers, layers);
  }

  Module& child(Module& parent, const std::string& name) const {
    return *parent.register_module(name, std::make_shared<Module>());
  }

  /// `path` of `parent`: the initial values depend on the full name.
  Weight normal(Module& parent, const std::string& path, at::IntArrayRef sizes,
                double deviation = kDeviation) const {
    if (!is_here_) return add_sizes(parent, path, "weight", sizes);
    auto whole = at::empty(sizes, dtype());
    fill_normal(whole, deviation, options_.seed, path + ".weight");
    return add(parent, path, "weight", whole);
  }

  Norm layer_norm(Module& parent, const std::string& path, const std::string& name) const {
    auto& module = child(parent, name);
    return {{constant(module, path + "." + name, "weight", options_.width, 1)},
            {constant(module, path + "." + name, "bias", options_.width, 0)}};
  }

  Block block(Module& list, int64_t index) const {
    const int64_t width = options_.width;
    const std::string name = std::to_string(index);
    const std::string path = "transformer.h." + name;
    const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(options_.layers));
    auto& module = child(list, name);
    auto linear = [&](Module& parent, const std::string& part, at::IntArrayRef sizes,
                      double deviation) {
      auto& own = child(parent, part.substr(part.find('.') + 1));
      const std::string full = path + "." + part;
      const Weight weight = normal(own, full, sizes, deviation);
      return std::pair(weight, constant(own, full, "bias", sizes[0], 0));
    };
    Block b;
    b.ln_1 = layer_norm(module, path, "ln_1");
    auto& attention = child(module, "attn");
    std::tie(b.qkv.weight, b.qkv_bias.weight) =
        linear(attention, "attn.c_attn", {width + 2 * kv_width(options_), width}, kDeviation);
    std::tie(b.out.weight, b.out_bias.weight) =
        linear(attention, "attn.c_proj", {width, width}, residual);
    b.ln_2 = layer_norm(module, path, "ln_2");
    auto& mlp = child(module, "mlp");
    std::tie(b.up.weight, b.up_bias.weight) =
        linear(mlp, "mlp.c_fc", {4 * width, width}, kDeviation);
    std::tie(b.down.weight, b.down_bias.weight) =
        linear(mlp, "mlp.c_proj", {width, 4 * width}, residual);
    b.qkv.blocks = blocks(path + ".attn.c_attn.weight", width + 2 * kv_width(options_));
    b.qkv_bias.blocks = b.qkv.blocks;
    b.out.blocks = blocks(path + ".attn.c_proj.weight", width);
    b.up.blocks = blocks(path + ".mlp.c_fc.weight", 4 * width);
    b.down.blocks = blocks(path + ".mlp.c_proj.weight", 4 * width);
    return b;
  }

  /// How the parameter of this full name is multiplied, `size` long where it is cut.
  parallel::tensor::FeatureBlocksPtr blocks(const std::string& name, int64_t size) const {
    const layout::Placement placement = layout::placement_of(placements_, name).or_throw();
    return parallel::tensor::feature_blocks(placement, size, options_.axis);
  }

 private:
  at::TensorOptions dtype() const {
    return options_.dtype == base::Precision::kFloat64 ? at::kDouble : at::kFloat;
  }

  Weight constant(Module& parent, const std::string& path, const std::string& name, int64_t size,
                  double value) const {
    if (!is_here_) return add_sizes(parent, path, name, {size});
    return add(parent, path, name, at::full({size}, value, dtype()));
  }

  Weight add_sizes(Module& parent, const std::string& path, const std::string& name,
                   at::IntArrayRef sizes) const {
    const at::Tensor mine = own_part(at::empty(sizes, at::kMeta), path + "." + name);
    return {parent.register_parameter(name, sizes_alone(mine.sizes(), dtype())), {}};
  }

  Weight add(Module& parent, const std::string& path, const std::string& name,
             const at::Tensor& whole) const {
    const at::Tensor mine = own_part(whole, path + "." + name);
    return {parent.register_parameter(name, mine.to(options_.device)), {}};
  }

  at::Tensor own_part(const at::Tensor& whole, const std::string& name) const {
    const auto& axis = options_.axis;
    const auto placement = layout::placement_of(placements_, name).or_throw();
    return parallel::tensor::part_of(whole, placement, axis.rank(), axis.degree());
  }

  const GptOptions& options_;
  const layout::PlacementTable placements_;
  bool is_here_ = true;
};

void check(const GptOptions& o) {
  const bool positive =
      o.layers > 0 && o.heads > 0 && o.width > 0 && o.block > 0 && o.vocabulary > 0;
  const bool fits = positive && o.width % o.heads == 0 && o.kv_heads >= 0 &&
                    (o.kv_heads == 0 || o.heads % o.kv_heads == 0);
  if (fits && o.dropout >= 0 && o.dropout < 1) return;
  throw Error(base::invalid_argument(
      "gpt: layers " + std::to_string(o.layers) + ", heads " + std::to_string(o.heads) +
      ", kv_heads " + std::to_string(o.kv_heads) + ", width " + std::to_string(o.width) +
      ", block " + std::to_string(o.block) + ", vocabulary " + std::to_string(o.vocabulary) +
      ", dropout " + std::to_string(o.dropout) +
      ": sizes are at least 1, width is a multiple of heads and heads of kv_heads, dropout lies in "
      "[0, 1)"));
}

}  // namespace

/// By role, and in the order of parameters().
struct GptImpl::Parameters {
  Parameter<Sharded<0>> token, head;  // head is the token embedding again where tied
  Parameter<Replicated> position;
  std::vector<Block> blocks;
  Norm ln_f;

  /// What a layer reads.
  std::vector<Weight*> of_layer(int64_t index) {
    if (index == 0) return {&token.weight, &position.weight};
    if (index <= std::ssize(blocks)) return blocks[index - 1].ordered();
    return {&ln_f.weight.weight, &ln_f.bias.weight, &head.weight};
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
    : Model("Gpt"),
      options_(options),
      rows_((options.sequence ? options.axis : Axis()).in_blocks(options.token_blocks)),
      context_(options.context.in_blocks(options.token_blocks)),
      parameters_(std::make_unique<Parameters>()) {
  check(options);
  Builder builder(options_);
  const int64_t last = options.layers + 1;
  auto& transformer = builder.child(*this, "transformer");
  auto table = [&](const std::string& name, int64_t rows) {
    return builder.normal(builder.child(transformer, name), "transformer." + name,
                          {rows, options.width});
  };
  builder.begin_layers({0, options.tied ? last : 0});
  parameters_->token.weight = table("wte", options.vocabulary);
  builder.begin_layers({0});
  parameters_->position.weight = table("wpe", options.block);
  auto& list = builder.child(transformer, "h");
  for (int64_t i = 0; i < options.layers; ++i) {
    builder.begin_layers({i + 1});
    parameters_->blocks.push_back(builder.block(list, i));
  }
  builder.begin_layers({last});
  parameters_->ln_f = builder.layer_norm(transformer, "transformer", "ln_f");
  parameters_->head.weight = options.tied
                                 ? parameters_->token.weight
                                 : builder.normal(builder.child(*this, "lm_head"), "lm_head",
                                                  {options.vocabulary, options.width});
  parameters_->head.blocks = builder.blocks("lm_head.weight", options.vocabulary);
}

GptImpl::~GptImpl() = default;

namespace {

/// A prompt is whole on every rank.
context::Places places_of(const GptOptions& o, const Axis& axis, const layers::Batch& batch) {
  const int64_t length = batch.inputs.size(1);
  if (!batch.targets.defined()) return {.length = length};
  return context::places_on(axis, length, o.context_way);
}

/// In which the products of a batch are computed, for stable bits.
FeatureBlocksPtr blocks_of(const Axis& context, const layers::Batch& batch) {
  if (!batch.targets.defined()) return nullptr;
  return parallel::tensor::token_blocks(batch.inputs.size(1), batch.inputs.size(0), context);
}

}  // namespace

/// What one forward of one layer needs to know beside the layer's parameters. The residual stream is
/// whole on the axis, or cut by tokens. With a context axis a rank has its own tokens alone.
template <class Placement>
class GptImpl::Pass {
 public:
  Pass(const GptOptions& options, const Axis& rows, const Axis& context, bool training,
       const layers::Batch& batch)
      : options_(options),
        context_(context),
        places_(places_of(options, context, batch)),
        tokens_(rows.extents_of(places_.num_own())),
        products_(blocks_of(context, batch)),
        sums_(rows.in_blocks(1)),
        dropped_(training ? options.dropout : 0.0),
        key_{batch.counters.seed, batch.counters.step, batch.positions.begin, 0},
        learns_(batch.targets.defined()) {
    if (!training || rows.num_blocks() == 1) return;
    sums_ = kIsCut ? rows : context;
    blocks_ = own_block_sizes(places_.length, sums_);
    for (int64_t& rows_of_block : blocks_) rows_of_block *= batch.inputs.size(0);
  }

  layers::Flow run(Parameters& p, int64_t index, layers::Flow flow,
                   const at::Tensor& tokens) const {
    if (index == 0) return embed(p, tokens);
    if (index > std::ssize(p.blocks)) return logits(p, std::move(flow));
    return block(p.blocks[index - 1], index - 1, std::move(flow));
  }

 private:
  using Rows = Typed<Placement>;
  using Delta = parallel::tensor::Delta<Placement>;
  using LayerNorm = parallel::tensor::LayerNorm<Placement>;
  static constexpr bool kIsCut = std::is_same_v<Placement, Tokens>;

  /// A branch whose bias the next normalisation adds, unless dropout stands between.
  struct Stream {
    Rows x;
    Delta delta;
  };

  layers::Flow embed(const Parameters& p, const at::Tensor& tokens) const {
    if (places_.length > options_.block) {
      throw Error(base::invalid_argument(
          "gpt: a sample has " + std::to_string(places_.length) + " tokens, the model's block is " +
          std::to_string(options_.block) + "; cut the sample or build a longer model"));
    }
    const at::Tensor own = context::own_tokens(tokens, 1, places_);
    const Rows found =
        to_stream(embedding(own, in_blocks(p.token), axis(), vocabulary_extents(options_)));
    return {dropped(found + positions(p.position), key_).value()};
  }

  /// What every row of a block meets.
  struct RowParameters {
    LayerNorm ln_1, ln_2;
    RowParameter<Placement> out_bias, down_bias;
  };

  layers::Flow block(const Block& b, int64_t index, layers::Flow flow) const {
    compute::DropoutKey key = key_;
    key.layer += 1 + index * num_keys();
    Stream stream = stream_of(std::move(flow));
    const RowParameters rows = rows_of(b);
    const auto qkv = column_linear(to_columns(normalise(stream, rows.ln_1)), in_blocks(b.qkv));
    const auto mixed = causal_attention(
        qkv, in_blocks(b.qkv_bias),
        {options_.heads, options_.attention, dropped_, key, options_.kv_heads}, axis(),
        [this](const at::Tensor& heads, const Weight& bias, const auto& attention) {
          return context::causal_attention(heads, bias, attention, places_);
        });
    stream.delta = branch(to_stream(row_linear(mixed, in_blocks(b.out))), rows.out_bias, key);
    stream.delta = branch(mlp(normalise(stream, rows.ln_2), b), rows.down_bias, key);
    return flow_of(std::move(stream));
  }

  Rows mlp(const Rows& x, const Block& b) const {
    if (!options_.moves_weights || !learns_) {
      const auto up = column_linear(to_columns(x), in_blocks(b.up));
      return to_stream(row_linear(bias_gelu(up, to_blocks(b.up_bias)), in_blocks(b.down)));
    }
    const auto hidden = axis().extents_of(4 * options_.width);
    const auto up = gathered_linear(own_rows(x), b.up, axis(), hidden);
    const auto bias = gather(b.up_bias, axis(), hidden);
    const auto down = gathered_linear(bias_gelu(up, bias), b.down, axis(), hidden);
    return all_rows(down, x.value().sizes());
  }

  layers::Flow logits(const Parameters& p, layers::Flow flow) const {
    Stream stream = stream_of(std::move(flow));
    const auto norm = entered({p.ln_f.weight, p.ln_f.bias});
    const auto normed = normalise(stream, norm_of(norm[0], norm[1], p.ln_f));
    const auto own = column_linear(to_columns(normed), in_blocks(p.head));
    if (learns_) return {own.value()};
    const Typed<Features> last(own.value().slice(1, -1));
    return {whole(last, axis(), vocabulary_extents(options_)).value()};
  }

  static Stream stream_of(layers::Flow flow) {
    flow.resize(layers::kMaxFlowTensors);
    return {Rows(std::move(flow[0])), {std::move(flow[1]), {Weight{std::move(flow[2]), {}}}}};
  }

  /// The bias leaves as a value of its own: the next layer sees no parameter of this one.
  static layers::Flow flow_of(Stream stream) {
    layers::Flow flow = {std::move(stream.x).value(), std::move(stream.delta.value)};
    const at::Tensor& bias = stream.delta.bias.weight.value;
    if (bias.defined()) flow.push_back(bias.clone());
    return flow;
  }

  const parallel::tensor::Axis& axis() const { return options_.axis; }
  Rows to_stream(const Typed<Partial>& x) const {
    if constexpr (kIsCut) return scatter_sum<-2>(x, axis(), tokens_);
    if constexpr (!kIsCut) return sum(x, axis());
  }
  Typed<Broadcast> to_columns(const Rows& x) const {
    if constexpr (kIsCut) return gather(x, axis(), tokens_);
    if constexpr (!kIsCut) return enter(x, axis());
  }
  /// Of all tokens of the batch, where they are not cut already.
  Typed<Tokens> own_rows(const Rows& x) const {
    if constexpr (kIsCut) return x;
    if constexpr (!kIsCut) {
      return parallel::tensor::cut<-2>(Rows(x.value().flatten(0, -2)), axis());
    }
  }
  Rows all_rows(const Typed<Tokens>& x, at::IntArrayRef sizes) const {
    if constexpr (kIsCut) return x;
    if constexpr (!kIsCut) {
      const auto rows = axis().extents_of(sizes[0] * sizes[1]);
      return Rows(whole(x, axis(), rows).value().view(sizes));
    }
  }
  std::vector<RowParameter<Placement>> entered(std::vector<Parameter<Replicated>> wholes) const {
    if constexpr (kIsCut) return enter(wholes, sums_);
    if constexpr (!kIsCut) {
      if (blocks_.empty()) return wholes;
      std::vector<RowParameter<Placement>> own;
      for (auto& one : enter(wholes, sums_)) own.push_back({std::move(one.weight)});
      return own;
    }
  }
  RowParameters rows_of(const Block& b) const {
    const auto own =
        entered({b.ln_1.weight, b.ln_1.bias, b.ln_2.weight, b.ln_2.bias, b.out_bias, b.down_bias});
    return {norm_of(own[0], own[1], b.ln_1), norm_of(own[2], own[3], b.ln_2), own[4], own[5]};
  }
  LayerNorm norm_of(const RowParameter<Placement>& weight, const RowParameter<Placement>& bias,
                    const Norm& whole) const {
    return {weight, bias, whole.epsilon, blocks_};
  }
  /// For products of blocks of rows, of all tokens that this rank multiplies.
  template <class P>
  P in_blocks(P parameter) const {
    return products_ ? enter_products(std::move(parameter), context_, products_) : parameter;
  }
  /// The same of a bias, once for each block.
  template <class P>
  P to_blocks(P bias) const {
    return products_ ? enter_rows(std::move(bias), context_, products_) : bias;
  }
  /// Of the tokens that are here.
  RowParameter<Placement> positions(const Parameter<Replicated>& all) const {
    const at::Tensor rows = all.weight.value.slice(0, 0, places_.length);
    const Typed<Replicated> used(
        products_ ? parallel::tensor::cut<-2>(Typed<Replicated>(rows), context_, places_.extents())
                        .value()
                  : context::own_tokens(rows, 0, places_));
    if constexpr (kIsCut) {
      return {{parallel::tensor::cut<-2>(used, axis(), tokens_).value(), {}}};
    }
    return {{used.value(), {}}};
  }

  /// Places that drop in one block: attention, and each branch where anything is dropped at all.
  int64_t num_keys() const { return dropped_ == 0 ? 1 : 3; }
  Rows dropped(const Rows& x, const compute::DropoutKey& key) const {
    if (dropped_ == 0) return x;
    if (places_.is_cut()) {
      const layout::Range here =
          kIsCut ? axis().own_range(tokens_) : layout::Range{0, places_.num_own()};
      return Rows(context::dropout(x.value(), dropped_, key, places_, here));
    }
    return dropout(x, dropped_, key, axis(), tokens_);
  }

  c10::ScalarType dtype(const Weight& weight) const {
    return options_.dtype == base::Precision::kBFloat16 ? at::kBFloat16
                                                        : weight.value.scalar_type();
  }

  Rows normalise(Stream& stream, const LayerNorm& norm) const {
    auto [sum, normed] = add_layer_norm(stream.x, stream.delta, norm, dtype(norm.weight.weight));
    stream.x = std::move(sum);
    return std::move(normed);
  }

  Delta branch(const Rows& value, const RowParameter<Placement>& bias,
               compute::DropoutKey& key) const {
    if (dropped_ == 0) return {value.value(), bias};
    ++key.layer;
    return {dropped(plus(value, bias), key).value(), {}};
  }

  Rows plus(const Rows& value, const RowParameter<Placement>& bias) const {
    const at::Tensor &x = value.value(), &own = bias.weight.value;
    if (!blocks_.empty()) return Rows(parallel::tensor::add_bias_to_blocks(x, own, blocks_));
    if (x.scalar_type() == own.scalar_type()) return value + bias;
    // A bf16 branch that a float32 bias made float32 would miss the fused normalisation.
    const int64_t rows = x.numel() / x.size(-1);
    return Rows(parallel::tensor::add_bias_to_blocks(x, own.unsqueeze(0), {rows}));
  }

  const GptOptions& options_;
  const Axis& context_;
  const context::Places places_;
  const parallel::tensor::Extents tokens_;  ///< Of a sample, on each rank where the stream is cut.
  const FeatureBlocksPtr products_;         ///< Of the rows that this rank multiplies.
  Axis sums_;                               ///< Over which the gradients of entered() are summed.
  parallel::tensor::Extents blocks_ = {};   ///< Of the tokens here, if they are summed in blocks.
  double dropped_;
  compute::DropoutKey key_;
  const bool learns_;
};

layers::Flow GptImpl::layer(int64_t index, layers::Flow flow, const layers::Batch& batch) {
  const auto run = [&](const auto& pass) {
    return pass.run(*parameters_, index, std::move(flow), batch.inputs);
  };
  // A prompt may have fewer tokens than the axis has ranks.
  const bool cuts_tokens = options_.sequence && batch.targets.defined();
  if (cuts_tokens) return run(Pass<Tokens>(options_, rows_, context_, is_training(), batch));
  return run(Pass<Replicated>(options_, rows_, context_, is_training(), batch));
}

std::vector<at::Tensor> GptImpl::layer_parameters(int64_t index) const {
  std::vector<at::Tensor> read;
  for (const Weight* weight : parameters_->of_layer(index)) read.push_back(weight->value);
  return read;
}

layers::LossSum GptImpl::loss(layers::Flow flow, const layers::Batch& batch) {
  const Typed<Features> logits(flow.at(0).view({-1, flow.at(0).size(-1)}));
  const auto columns = vocabulary_extents(options_);
  const context::Places places = places_of(options_, context_, batch);
  const at::Tensor targets = context::own_tokens(batch.targets, 1, places).reshape({-1});
  const auto rows = blocks_of(context_, batch);
  const auto sum =
      cross_entropy_sum(logits, targets, options_.axis, columns, {parameters_->head.blocks, rows});
  if (rows) return {sum_rows(sum, context_).value(), batch.num_valid};
  return {sum.value(), places.is_cut() ? targets.ge(0).sum().item<int64_t>() : batch.num_valid};
}

layout::Cut GptImpl::cut() const {
  return {placements_of(options_), options_.axis.rank(), options_.axis.degree()};
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
  if (options_.tied) parameters_->head.weight.slot = parameters_->token.weight.slot;
}

std::vector<bool> GptImpl::rounded_parameters() const {
  const bool are_whole = options_.axis.num_blocks() == 1 && options_.token_blocks == 1;
  std::vector<bool> rounded;
  if (options_.dtype != base::Precision::kBFloat16 || !are_whole || options_.moves_weights) {
    return rounded;
  }
  for (const Weight* one : parameters_->ordered(options_.tied)) {
    const bool is_table = one == &parameters_->position.weight ||
                          (one == &parameters_->token.weight && !options_.tied);
    rounded.push_back(one->value.dim() == 2 && !is_table);
  }
  return rounded;
}

void GptImpl::set_rounded_parameters(std::vector<at::Tensor> rounded) {
  auto weights = parameters_->ordered(options_.tied);
  if (options_.tied) weights[0] = &parameters_->head.weight;
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i]->rounded = rounded.empty() ? at::Tensor() : rounded.at(i);
    weights[i]->rounded_version = weights[i]->value._version();
  }
}

std::shared_ptr<layers::Model> make_gpt(const GptOptions& options) {
  return std::make_shared<GptImpl>(options);
}

}  // namespace hanji::models
