#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "hanji/base/units.h"
#include "hanji/layout/context.h"
#include "hanji/layout/part.h"
#include "hanji/plan/context.h"
#include "hanji/plan/internal/families.h"
#include "hanji/plan/memory.h"
#include "hanji/plan/model_spec.h"
#include "hanji/schedule/pipeline_schedule.h"

namespace hanji::plan {
namespace {

constexpr std::array<std::string_view, 4> kPresets = {"nano", "char", "baby", "gpt2"};
constexpr std::array<std::string_view, 9> kKeys = {
    "model.layers",     "model.heads",   "model.kv_heads", "model.width", "model.block",
    "model.vocabulary", "model.dropout", "model.tied",     "model.init"};
constexpr std::array<std::string_view, 2> kCutAxes = {"tp", "cp"};
constexpr std::array kPrecisions = {Precision::kFloat32, Precision::kBFloat16, Precision::kFloat64};

constexpr int64_t kTokenBytes = 8;

/// Element-wise operations read and write each element of theirs; backward reads gradients besides and
/// writes as many.
constexpr double kElementPasses = 2 * 3;

int64_t element_bytes(Precision precision) {
  return precision == Precision::kFloat64 ? 8 : precision == Precision::kBFloat16 ? 2 : 4;
}

void resolve_sizes(ModelConfig& model) {
  const ModelSpec spec = resolve_model(model);
  model.layers = spec.layers;
  model.heads = spec.heads;
  model.width = spec.width;
  model.block = spec.block;
}

/// Columns of hidden features or vocabulary that one block has at least.
constexpr int64_t kBlockColumns = 16;

/// By tp, queries share the keys and values of their group, which no rank parts. By cp, Ulysses repeats
/// these, and a rank has a token, or of a ring two ranges of them.
ModelParts parts_of(const Config& config, std::string_view axis) {
  const ModelSpec model = resolve_model(config.model);
  if (axis == "pp") {
    const PipelineConfig& p = config.pipeline;
    const bool is_user = p.schedule == PipelineKind::kUser;
    const int each =
        is_user ? 1 : schedule::stages_per_rank(p.schedule, static_cast<int>(p.virtual_stages));
    return {"layers", "model.layers", model.layers + 2, each, 2, "embedding and head"};
  }
  if (axis == "cp") {
    const bool rings = context_way(config) == ContextWay::kRing;
    if (rings) return {"tokens", "model.block", model.block, 2};
    if (model.block < model.heads) return {"tokens", "model.block", model.block};
    return {"heads", "model.heads", model.heads};
  }
  if (model.kv_heads > 0) return {"heads", "model.kv_heads", model.kv_heads};
  return {"heads", "model.heads", model.heads};
}

std::vector<Contradiction> check_sizes(const Config& config) {
  const ModelSpec model = resolve_model(config.model);
  std::vector<Contradiction> found;
  if (model.width % model.heads != 0) {
    found.push_back(
        {{"model.heads", "model.width", "model.preset"},
         fmt::format("model.width {} is not a multiple of model.heads {}", model.width,
                     model.heads),
         fmt::format("set model.width = {}", (model.width / model.heads + 1) * model.heads)});
  }
  if (model.kv_heads > 0 && model.heads % model.kv_heads != 0) {
    int64_t divisor = std::min(model.kv_heads, model.heads);
    while (model.heads % divisor != 0) --divisor;
    found.push_back({{"model.kv_heads", "model.heads", "model.preset"},
                     fmt::format("model.heads {} is not a multiple of model.kv_heads {}",
                                 model.heads, model.kv_heads),
                     fmt::format("set model.kv_heads = {}", divisor)});
  }
  const ModelParts parts = parts_of(config, "tp");
  const int64_t heads = parts.count;
  // The data decides on a vocabulary that is left open, and its blocks are checked when it has.
  const bool has_vocabulary = config.model.vocabulary != kAuto;
  const int64_t vocabulary = has_vocabulary ? model.vocabulary : kBlockColumns * heads;
  const int64_t most = std::max<int64_t>(
      1, std::min({heads, 4 * model.width / kBlockColumns, vocabulary / kBlockColumns}));
  if (config.train.cuts.features > most) {
    found.push_back(
        {{"train.cuts.features", parts.key, "model.vocabulary", "model.preset"},
         fmt::format("train.cuts.features is {}, but a block has whole heads and {} of the "
                     "vocabulary; {} is {}{}",
                     config.train.cuts.features, base::counted(kBlockColumns, "column"), parts.key,
                     heads, has_vocabulary ? fmt::format(", the vocabulary {}", vocabulary) : ""),
         fmt::format("set train.cuts.features = {} or less", most)});
  }
  return found;
}

std::string describe_sizes(const ModelConfig& model, int64_t vocabulary) {
  const ModelSpec m = resolve_model(model);
  const std::string shared =
      m.kv_width() == m.width ? "" : fmt::format(" on {} of keys and values", m.kv_heads);
  return fmt::format("{}, {}{}, {} wide, block {}, vocabulary {}, {} head",
                     base::counted(m.layers, "layer"), base::counted(m.heads, "head"), shared,
                     m.width, m.block, vocabulary, m.tied ? "tied" : "untied");
}

/// `bytes` of so many samples are linear in them.
template <class Bytes>
Amount amount_of(ActivationOptions options, const Bytes& bytes) {
  options.micro_batch = 1;
  const int64_t one = bytes(options);
  options.micro_batch = 2;
  const int64_t two = bytes(options);
  return {.fixed = 2 * one - two, .per_sample = two - one};
}

/// What the rank that has most of a cut model has of it.
struct OwnSizes {
  int64_t heads = 1;
  int64_t kv_heads = 0;   ///< As AttentionFacts.
  int64_t attention = 1;  ///< Features of its heads.
  int64_t keys = 1;       ///< Of its keys, or values.
  int64_t tokens = 1;     ///< Of a sample.
  int64_t rows = 1;       ///< Of these in the residual stream,
  int64_t mlp_rows = 1;   ///< in the MLP, and
  int64_t hidden = 1;     ///< features of these in the MLP.
  int64_t vocabulary = 1;

  bool is_whole(const ModelSpec& m) const {
    return hidden == 4 * m.width && rows == m.block && mlp_rows == m.block;
  }
};

OwnSizes own_sizes(const ModelSpec& m, FeatureCut cut) {
  const auto most = [cut](int64_t size, int64_t unit) {
    return std::ranges::max(layout::part_sizes(size, unit, cut.degree, cut.blocks));
  };
  const bool by_rows = cut.moves == Moves::kWeights;
  const int64_t tokens = cut.tokens > 0 ? cut.tokens : m.block;
  const int64_t columns = cut.blocks > 1 ? kBlockColumns : 1;
  const int64_t size = m.width / m.heads;
  const int64_t kv_heads = most(m.kv_heads > 0 ? m.kv_heads : m.heads, 1);
  const int64_t heads = m.kv_heads > 0 ? m.heads / m.kv_heads * kv_heads : kv_heads;
  return {.heads = heads,
          .kv_heads = m.kv_heads > 0 ? kv_heads : 0,
          .attention = heads * size,
          .keys = kv_heads * size,
          .tokens = tokens,
          .rows = cut.sequence ? most(tokens, 1) : tokens,
          .mlp_rows = by_rows ? most(tokens, 1) : tokens,
          .hidden = by_rows ? 4 * m.width : most(4 * m.width, columns),
          .vocabulary = most(m.vocabulary, columns)};
}

/// The share of a saved tensor that the rank has.
double own_share(std::string_view tensor, const ModelSpec& m, const OwnSizes& own) {
  const auto ratio = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  if (tensor == "layer.up" || tensor == "layer.gelu") {
    return ratio(own.hidden * own.mlp_rows, 4 * m.width * m.block);
  }
  const double here = ratio(own.tokens, m.block);
  if (tensor == "logits" || tensor == "head.cast")
    return here * ratio(own.vocabulary, m.vocabulary);
  if (tensor.ends_with("norm.output")) return here;  // gathered for the product, and kept so
  const bool of_heads = tensor.starts_with("layer.") && tensor != "layer.branch_masks";
  return of_heads ? here * ratio(own.heads, m.heads) : ratio(own.rows, m.block);
}

constexpr std::array<std::string_view, 1> kEmbeddingRows = {"embedding."};
constexpr std::array<std::string_view, 3> kBlockRows = {"norm.", "layer.", "block."};
/// The embeddings end in no branch, which recomputation would keep.
constexpr std::array<std::string_view, 3> kFirstBlockRows = {"norm.", "layer.", "block.stream"};
constexpr std::array<std::string_view, 3> kHeadRows = {"last_norm.", "head.", "logits"};

/// What one of `layers` keeps, from the rows whose names begin with one of `parts`.
Amount kept_by(const ModelSpec& m, const ActivationOptions& options, const OwnSizes& own,
               std::span<const std::string_view> parts, int64_t layers) {
  return amount_of(options, [&](const ActivationOptions& samples) {
    int64_t bytes = 0;
    for (const SavedTensor& row : saved_tensors(m, samples)) {
      const bool of_parts = std::ranges::any_of(parts, [&](std::string_view part) {
        return std::string_view(row.name).starts_with(part);
      });
      if (!of_parts) continue;
      const int64_t whole = (row.count + layers - 1) / layers * row.elements * row.element_bytes;
      bytes += std::llround(own_share(row.name, m, own) * static_cast<double>(whole));
    }
    return bytes;
  });
}

LayerFacts embeddings(const ModelSpec& m, const ActivationOptions& options, const OwnSizes& own) {
  return {.name = "embeddings",
          .rows = {{OperationKind::kEmbedding, own.tokens, m.width, own.vocabulary}},
          .kept = kept_by(m, options, own, kEmbeddingRows, 1),
          .backward = {}};
}

Amount head_kept(const ModelSpec& m, const ActivationOptions& options, const OwnSizes& own) {
  return kept_by(m, options, own, kHeadRows, 1);
}

/// Beside what is kept by then. Of a block that is cut: the gradients of GELU's output and input and of
/// the stream, and with recompute what it keeps for its own backward.
Amount block_workspace(const ModelSpec& m, const ActivationOptions& options, const OwnSizes& own) {
  if (own.is_whole(m)) {
    Amount bytes =
        amount_of(options, [&](const auto& samples) { return workspace_in_block(m, samples); });
    const Amount in_head = head_kept(m, options, own);  // which is given up by then
    bytes.fixed += in_head.fixed;
    bytes.per_sample += in_head.per_sample;
    return bytes;
  }
  ActivationOptions whole = options;
  whole.recompute = false;
  Amount bytes =
      options.recompute ? kept_by(m, whole, own, kBlockRows, m.layers) : Amount{.per_sample = 0};
  bytes.per_sample +=
      element_bytes(options.precision) * (2 * own.mlp_rows * own.hidden + 2 * own.rows * m.width);
  return bytes;
}

/// Of a whole block; those that are cut are counted.
std::optional<Amount> in_attention(const ModelSpec& m, const ActivationOptions& options,
                                   const OwnSizes& own) {
  if (!own.is_whole(m) || m.dropout > 0) return std::nullopt;
  return amount_of(options, [&](const auto& samples) { return beside_attention(m, samples); });
}

/// Of all tokens under Ulysses the rank's heads; of a ring all heads, whose triangle its ranks share out.
AttentionFacts attention_of(const ModelSpec& m, const OwnSizes& own, FeatureCut cut) {
  const int64_t size = m.width / m.heads;
  if (cut.context == 1) return {own.heads, m.block, m.block, size, own.kv_heads};
  const layout::ContextAttention attention{.tokens = m.block,
                                           .heads = own.heads,
                                           .kv_heads = own.kv_heads > 0 ? own.kv_heads : own.heads,
                                           .width = size,
                                           .ranks = cut.context};
  if (cut.way != ContextWay::kRing) {
    const int64_t heads = layout::context_heads(attention)[0];
    const int64_t kv_heads = attention.kv_heads * layout::context_repeats(attention);
    return {heads, m.block, m.block, size, heads / (own.heads / kv_heads)};
  }
  return {own.heads, m.block, m.block, size, own.kv_heads, cut.context};
}

LayerFacts block(const ModelSpec& m, const ActivationOptions& options, const OwnSizes& own,
                 FeatureCut cut) {
  const auto rows = static_cast<double>(own.tokens), mlp_rows = static_cast<double>(own.mlp_rows);
  const int64_t c = m.width;
  const int64_t of_norms = own.rows * 4 * c, of_qkv = own.tokens * (own.attention + 2 * own.keys),
                of_gelu = own.mlp_rows * own.hidden;
  return {.name = "block",
          .products = {{rows, own.attention + 2 * own.keys, c},
                       {rows, c, own.attention},
                       {mlp_rows, own.hidden, c},
                       {mlp_rows, c, own.hidden}},
          .attention = attention_of(m, own, cut),
          .rows = {{OperationKind::kNorm, own.rows, c, 1, 2},
                   {OperationKind::kGelu, own.mlp_rows, own.hidden}},
          .elementwise_bytes =
              kElementPasses *
              static_cast<double>((of_norms + of_qkv + of_gelu) * element_bytes(options.precision)),
          .kept = kept_by(m, options, own, kBlockRows, m.layers),
          .backward = block_workspace(m, options, own),
          .in_attention = in_attention(m, options, own),
          .is_repeated = options.recompute};
}

/// Gradients of the rank's rows, or of its part of their logits.
Amount head_workspace(const ModelSpec& m, const ActivationOptions& options, const OwnSizes& own) {
  ModelSpec part = m;
  part.block = own.tokens;
  part.vocabulary = own.vocabulary;
  return amount_of(options, [&](const auto& samples) { return workspace_in_head(part, samples); });
}

LayerFacts head(const ModelSpec& m, const ActivationOptions& options, const OwnSizes& own) {
  return {.name = "head",
          .products = {{static_cast<double>(own.tokens), own.vocabulary, m.width}},
          .rows = {{OperationKind::kNorm, own.rows, m.width},
                   {OperationKind::kLoss, own.tokens, own.vocabulary}},
          .kept = head_kept(m, options, own),
          .backward = head_workspace(m, options, own)};
}

/// Of its 12 tensors in a block: those of qkv, the projection's weight and the MLP's are cut.
int64_t own_elements(size_t index, int64_t elements, const ModelSpec& m, const OwnSizes& own) {
  const auto part = [elements](int64_t mine, int64_t all) { return elements / all * mine; };
  const int64_t num_blocks = 12 * m.layers;
  const auto at = static_cast<int64_t>(index) - 2;
  if (at == -1) return elements;  // positions
  if (at == -2 || at >= num_blocks + 2) return part(own.vocabulary, m.vocabulary);
  if (at >= num_blocks) return elements;
  switch (at % 12) {
    case 2:
    case 3: return part(own.attention + 2 * own.keys, m.width + 2 * m.kv_width());
    case 4: return part(own.attention, m.width);
    case 8:
    case 9:
    case 10: return part(own.hidden, 4 * m.width);
    default: return elements;
  }
}

/// The first two tensors are the embeddings', the next twelve a block's each, the others the head's.
std::vector<ParameterFacts> parameters_of(const ModelSpec& m, const OwnSizes& own) {
  std::vector<ParameterFacts> parameters;
  for (const int64_t elements : m.parameter_sizes()) {
    const int64_t before = std::ssize(parameters);
    const int64_t layer = before < 2 ? 0 : std::min((before - 2) / 12, m.layers) + 1;
    parameters.push_back({own_elements(parameters.size(), elements, m, own), layer});
  }
  return parameters;
}

ModelFacts facts_of(const Config& config) {
  return gpt_facts(resolve_model(config.model),
                   {.precision = config.compute.dtype,
                    .device = config.compute.device,
                    .recompute = config.compute.recompute},
                   {.degree = static_cast<int>(config.mesh.tp),
                    .blocks = static_cast<int>(config.train.cuts.features),
                    .sequence = config.parallel.sequence,
                    .moves = config.parallel.moves,
                    .context = static_cast<int>(config.mesh.cp),
                    .way = context_way(config),
                    .tokens = std::ranges::max(context_extents(config))});
}

std::vector<cost::LinearRegion> mlp_of(const Config& config, int64_t samples) {
  const ModelSpec m = resolve_model(config.model);
  const cost::End end = config.parallel.sequence ? cost::End::kTokens : cost::End::kWhole;
  const int64_t rows = samples * m.block, hidden = 4 * m.width;
  return {{"up", rows, m.width, hidden, end},
          {"down", rows, hidden, m.width, cost::End::kFree, end}};
}

/// Of a sample: a rank of a ring keeps its keys and values as it passes them on, beside those of the product.
int64_t passed_on_bytes(const ActivationOptions& options, const OwnSizes& own, FeatureCut cut) {
  if (cut.context == 1 || cut.way != ContextWay::kRing) return 0;
  return own.tokens * 2 * own.keys * element_bytes(options.precision);
}

/// What the products of one layer take beside weights: gradients of these are computed of that.
std::optional<Amount> for_weights(const LayerFacts& layer, Precision precision) {
  if (layer.products.empty()) return std::nullopt;
  double elements = 0;
  for (const Product& one : layer.products) elements += one.m * static_cast<double>(one.k + one.n);
  return Amount{.per_sample = element_bytes(precision) * std::llround(elements)};
}

}  // namespace

ModelFacts gpt_facts(const ModelSpec& m, const ActivationOptions& options, FeatureCut cut) {
  const OwnSizes own = own_sizes(m, cut);
  ModelFacts facts{.layers = {embeddings(m, options, own)},
                   .parameters = parameters_of(m, own),
                   .targets_per_sample = m.block,
                   .sample_bytes = 2 * m.block * kTokenBytes,
                   .has_gradient_slots = true};
  const LayerFacts one = block(m, options, own, cut);
  for (int64_t i = 0; i < m.layers; ++i) {
    facts.layers.push_back(one);
    facts.layers.back().name = fmt::format("block {}", i);
  }
  facts.layers.push_back(head(m, options, own));
  if (m.tied) facts.layers.back().tied = {0};
  facts.layers[1].kept = kept_by(m, options, own, kFirstBlockRows, m.layers);
  const int64_t passed_on = passed_on_bytes(options, own, cut);
  for (LayerFacts& layer : facts.layers) {
    layer.for_weights = for_weights(layer, options.precision);
    if (!layer.attention) continue;
    (options.recompute ? layer.backward : layer.kept).per_sample += passed_on;
  }
  return facts;
}

ModelFamily gpt_family() {
  return {.name = "gpt",
          .data = DataKind::kTokens,
          .presets = kPresets,
          .keys = kKeys,
          .precisions = kPrecisions,
          .cut_axes = kCutAxes,
          .parts = parts_of,
          .resolve = resolve_sizes,
          .check = check_sizes,
          .describe = describe_sizes,
          .facts = facts_of,
          .mlp = mlp_of};
}

}  // namespace hanji::plan
