#include "hanji/plan/named_model.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "hanji/base/units.h"
#include "hanji/plan/internal/facts_json.h"
#include "hanji/plan/internal/families.h"
#include "hanji/plan/model_family.h"

namespace hanji::plan {
namespace {

constexpr std::string_view kFamily = "gpt:";
constexpr int64_t kVocabulary = 50304;
constexpr int64_t kBlock = 2048;
constexpr int64_t kMaxLayers = 512;
constexpr double kWidthPerLayer = 128;  // of the published GPT models from 1.3 B up: 85 to 128
constexpr double kTolerance = 0.01;
constexpr int64_t kLeast = 1'000'000;
constexpr int64_t kMaxParameters = 10'000'000'000'000;
constexpr int64_t kCountedFormat = 1;
constexpr size_t kMaxFile = size_t{16} << 20;

/// "7B", "124M", "1.5T": powers of 1000.
std::optional<int64_t> parse_count(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || text.data() + text.size() - end != 1) return {};
  const double unit = *end == 'M' ? 1e6 : *end == 'B' ? 1e9 : *end == 'T' ? 1e12 : 0;
  const double count = value * unit;
  if (!(count >= static_cast<double>(kLeast) && count <= static_cast<double>(kMaxParameters)))
    return {};
  return std::llround(count);
}

ModelSpec with(int64_t layers, int64_t width) {
  const int64_t head = width % 128 == 0 && width >= 2048 ? 128 : 64;
  return {.layers = layers,
          .heads = width / head,
          .width = width,
          .block = kBlock,
          .vocabulary = kVocabulary};
}

/// The width at which so many layers come closest to `parameters`.
ModelSpec with_layers(int64_t layers, int64_t parameters) {
  const double a = 12.0 * static_cast<double>(layers);
  const double b = static_cast<double>(kVocabulary + kBlock + 13 * layers + 2);
  const double width = (std::sqrt(b * b + 4 * a * static_cast<double>(parameters)) - b) / (2 * a);
  const int64_t multiple = width >= 2048 ? 128 : 64;
  const int64_t steps = std::llround(width / static_cast<double>(multiple));
  return with(layers, std::max<int64_t>(1, steps) * multiple);
}

double miss(const ModelSpec& spec, int64_t parameters) {
  return std::abs(static_cast<double>(spec.num_parameters()) / static_cast<double>(parameters) - 1);
}

double oddity(const ModelSpec& spec) {
  return std::abs(std::log(static_cast<double>(spec.width) /
                           (kWidthPerLayer * static_cast<double>(spec.layers))));
}

/// Of the shapes within the tolerance the most usual one; if there is none the closest.
ModelSpec shape_of(int64_t parameters) {
  ModelSpec best = with_layers(1, parameters);
  for (int64_t layers = 2; layers <= kMaxLayers; ++layers) {
    const ModelSpec one = with_layers(layers, parameters);
    const double mine = miss(one, parameters), others = miss(best, parameters);
    const bool both = mine <= kTolerance && others <= kTolerance;
    if (both ? oddity(one) < oddity(best) : mine < others) best = one;
  }
  return best;
}

std::string describe(const ModelSpec& m) {
  return fmt::format(
      "{}, {} wide, {},\n           blocks of {}, vocabulary {} (as built "
      "{:.4g} "
      "x 10^9)",
      base::counted(m.layers, "layer"), m.width, base::counted(m.heads, "head"),
      base::counted(m.block, "token"), m.vocabulary, static_cast<double>(m.num_parameters()) / 1e9);
}

/// The sizes, and how many parameters they were said to have.
Result<std::pair<ModelSpec, int64_t>> find_spec(std::string_view name, ModelConfig sizes) {
  if (!name.starts_with(kFamily)) {
    HANJI_RETURN_IF_ERROR(preset(name).status());
    sizes.preset = name;
    const ModelSpec spec = resolve_model(sizes);
    return std::pair(spec, spec.num_parameters());
  }
  const auto count = parse_count(name.substr(kFamily.size()));
  if (!count) {
    return base::invalid_argument(fmt::format(
        "\"{}\" is not a size of 1M to 10T parameters; write gpt:124M, gpt:7B or gpt:1.5T", name));
  }
  ModelSpec spec = shape_of(*count);
  if (sizes.block != kAuto) spec.block = sizes.block;
  return std::pair(spec, *count);
}

int64_t width_of(Precision precision) {
  return precision == Precision::kBFloat16 ? 2 : parameter_bytes(precision);
}

ModelFacts scaled(ModelFacts facts, int64_t to, int64_t from) {
  const auto scale = [&](Amount& amount) {
    amount = {amount.fixed / from * to, amount.per_sample / from * to};
  };
  for (LayerFacts& layer : facts.layers) {
    for (Amount* amount : {&layer.kept, &layer.flow, &layer.backward}) scale(*amount);
    layer.elementwise_bytes *= static_cast<double>(to) / static_cast<double>(from);
  }
  return facts;
}

}  // namespace

Result<NamedModel> find_model(std::string_view name, const FactsOptions& options,
                              ModelConfig sizes) {
  HANJI_ASSIGN_OR_RETURN(const auto found, find_spec(name, std::move(sizes)));
  const auto& [spec, count] = found;
  if (spec.block < 1) {
    return base::invalid_argument(fmt::format("--block {} is below 1", spec.block));
  }
  ActivationOptions plain = options, again = options;
  plain.recompute = false;
  again.recompute = true;
  return NamedModel{.name = std::string(name),
                    .num_parameters = count,
                    .sizes = describe(spec),
                    .facts = gpt_facts(spec, plain),
                    .recomputed = gpt_facts(spec, again),
                    .gpt = spec};
}

std::string describe_sample(const Config& config) {
  const DataConfig& data = config.data;
  if (data_kind(config) == DataKind::kPairs) {
    return has_sequences(data.pairs) ? base::counted(data.residues, "residue") + " by " +
                                           base::counted(data.sequences, "sequence")
                                     : "pairs of " + base::counted(data.residues, "residue");
  }
  const std::string classes =
      data.files.empty() ? fmt::format(" in {} classes", data.classes) : std::string();
  return fmt::format("images of {0} x {0} pixels{1}", data.image_size, classes);
}

NamedModel named(std::string_view name, const CountedModel& counted, Precision precision,
                 std::string_view sample) {
  const int64_t to = width_of(precision), from = width_of(counted.precision);
  std::string words = fmt::format(
      "{},\n           {}{}counted in {}", base::counted(counted.facts.layers.size(), "layer"),
      sample, sample.empty() ? "" : ",\n           ", name_of(counted.precision));
  if (to != from)
    words += fmt::format(", bytes of activations x {}/{} for {}", to, from, name_of(precision));
  return {.name = std::string(name),
          .num_parameters = counted.facts.num_parameters(),
          .sizes = std::move(words),
          .facts = scaled(counted.facts, to, from),
          .recomputed = scaled(counted.recomputed, to, from)};
}

std::string to_json(const CountedModel& model) {
  const base::Json json = {{"format", kCountedFormat},
                           {"precision", name_of(model.precision)},
                           {"facts", to_value(model.facts)},
                           {"recomputed", to_value(model.recomputed)}};
  return base::dump(json) + "\n";
}

Result<CountedModel> counted_model_from_json(std::string_view text) {
  return read_text<CountedModel>(text, "model", kMaxFile, [](JsonFields& fields) {
    fields.integer("format", kCountedFormat, kCountedFormat);
    CountedModel model{.precision = fields.word<Precision>("precision"),
                       .facts = read_part(fields, "facts", read_model_facts),
                       .recomputed = read_part(fields, "recomputed", read_model_facts)};
    if (model.facts.parameters != model.recomputed.parameters) {
      fields.fail("recomputed", "has other parameters than facts");
    }
    return model;
  });
}

}  // namespace hanji::plan
