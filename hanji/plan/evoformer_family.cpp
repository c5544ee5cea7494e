#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hanji/base/units.h"
#include "hanji/plan/internal/families.h"
#include "hanji/plan/openfold_names.h"

namespace hanji::plan {
namespace {

struct EvoformerSizes {
  std::string_view preset;
  int64_t layers, width, heads;
};

/// AlphaFold 2's and 3's, and of the first the small ones.
constexpr std::array kEvoformerSizes = {
    EvoformerSizes{"evoformer-tiny", 2, 32, 2}, EvoformerSizes{"evoformer-demo", 4, 64, 4},
    EvoformerSizes{"evoformer-af2", 48, 128, 4}, EvoformerSizes{"pairformer", 48, 128, 4},
    EvoformerSizes{"pairmixer", 48, 128, 4}};

constexpr std::array<std::string_view, 3> kEvoformerPresets = {"evoformer-tiny", "evoformer-demo",
                                                               "evoformer-af2"};
constexpr std::array<std::string_view, 2> kPairformerPresets = {"pairformer", "pairmixer"};
constexpr std::array<std::string_view, 6> kEvoformerKeys = {"model.layers", "model.heads",
                                                            "model.width",  "model.dropout",
                                                            "model.init",   "model.chunk_bytes"};
constexpr std::array kEvoformerPrecisions = {Precision::kFloat32, Precision::kBFloat16,
                                             Precision::kFloat64};

/// From zeros in all output layers, small rates of a warm-up lead into a plateau where no contact is told
/// from another: a small stack begins with the whole rate.
std::span<const KeyDefault> evoformer_defaults() {
  static constexpr auto kTiny = std::span(kEvoformerPresets).first<1>();
  static constexpr auto kSmall = std::span(kEvoformerPresets).first<2>();
  static const std::array defaults = {
      KeyDefault{"data.pairs", static_cast<int64_t>(Pairs::kContacts)},
      KeyDefault{"train.global_batch", int64_t{8}, kSmall},
      KeyDefault{"train.learning_rate", 3e-3, kTiny},
      KeyDefault{"train.warmup_steps", int64_t{0}, kSmall},
      KeyDefault{"train.schedule", static_cast<int64_t>(LearningRateSchedule::kWarmupStableDecay),
                 kSmall},
  };
  return defaults;
}

std::span<const KeyDefault> pairformer_defaults() {
  static const std::array defaults = {
      KeyDefault{"data.pairs", static_cast<int64_t>(Pairs::kPaths)}};
  return defaults;
}

/// The crops of the first training of AlphaFold 2: supplement of Jumper et al., table 4.
std::span<const KeyDefault> published_evoformer() {
  static constexpr auto kPublished = std::span(kEvoformerPresets).last<1>();
  static const std::array published = {KeyDefault{"data.residues", int64_t{256}, kPublished},
                                       KeyDefault{"data.sequences", int64_t{128}, kPublished}};
  return published;
}

/// Of AlphaFold 3: supplement of Abramson et al., Nature 630:493, 2024, table 6. pairmixer takes the place of its
/// trunk.
std::span<const KeyDefault> published_pairformer() {
  static const std::array published = {KeyDefault{"data.residues", int64_t{384}}};
  return published;
}

constexpr std::array<std::string_view, 1> kEvoformerAxes = {"axial"};

/// Rows of pairs, and sequences where there are any.
ModelParts parts_of_pairs(const Config& config, std::string_view /*axis*/) {
  const DataConfig& data = config.data;
  if (has_sequences(data.pairs) && data.sequences < data.residues) {
    return {"sequences", "data.sequences", data.sequences};
  }
  return {"rows of pairs", "data.residues", data.residues};
}

void resolve_evoformer(ModelConfig& model) {
  const auto found = std::ranges::find(kEvoformerSizes, model.preset, &EvoformerSizes::preset);
  const EvoformerSizes& sizes = found == kEvoformerSizes.end() ? kEvoformerSizes.front() : *found;
  if (model.layers == kAuto) model.layers = sizes.layers;
  if (model.width == kAuto) model.width = sizes.width;
  if (model.heads == kAuto) model.heads = sizes.heads;
}

std::string describe_evoformer(const ModelConfig& model, int64_t classes) {
  return fmt::format("{}, pairs {} wide, {}, {} classes", base::counted(model.layers, "block"),
                     model.width, base::counted(model.heads, "head"), classes);
}

std::vector<Contradiction> check_evoformer(const Config& config) {
  std::vector<Contradiction> found;
  const ModelConfig model = resolved(config.model);
  if (model.width % model.heads != 0) {
    found.push_back(
        {{"model.width", "model.heads"},
         fmt::format("model.width is {}, which is not a multiple of model.heads = {}", model.width,
                     model.heads),
         fmt::format("set model.width = {}", (model.width / model.heads + 1) * model.heads)});
  }
  const auto& usual = family_of(model).defaults.front();
  const auto task = static_cast<Pairs>(std::get<int64_t>(usual.value));
  const Pairs given = config.data.pairs;
  if (given != Pairs::kNone && has_sequences(given) != has_sequences(task)) {
    found.push_back(
        {{"data.pairs", "model.preset"},
         fmt::format("data.pairs is {}, but model.preset = {} reads {}", name_of(given),
                     model.preset, has_sequences(task) ? "sequences" : "pairs without sequences"),
         fmt::format("set data.pairs = \"{}\"", name_of(task))});
  }
  return found;
}

ModelFamily family_of_pairs(std::string_view name, std::span<const std::string_view> presets,
                            std::span<const KeyDefault> defaults,
                            std::span<const KeyDefault> published) {
  return {.name = name,
          .data = DataKind::kPairs,
          .presets = presets,
          .keys = kEvoformerKeys,
          .defaults = defaults,
          .published = published,
          .precisions = kEvoformerPrecisions,
          .cut_axes = kEvoformerAxes,
          .parts = parts_of_pairs,
          .renamed = renamed_of_openfold,
          .trunk = "evoformer.blocks.",
          .resolve = resolve_evoformer,
          .check = check_evoformer,
          .describe = describe_evoformer};
}

}  // namespace

ModelFamily evoformer_family() {
  return family_of_pairs("evoformer", kEvoformerPresets, evoformer_defaults(),
                         published_evoformer());
}

ModelFamily pairformer_family() {
  return family_of_pairs("pairformer", kPairformerPresets, pairformer_defaults(),
                         published_pairformer());
}

}  // namespace hanji::plan
