#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/cost/linear_region.h"
#include "hanji/plan/config.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/schema.h"

namespace hanji::plan {

/// The kind of a model's data; kOwn: the source of a program.
enum class DataKind : uint8_t { kTokens, kImages, kPairs, kOwn };

/// "tokens", "images", "pairs", "targets": the unit by whose number a loss is divided.
std::string_view targets_of(DataKind kind);
/// "tokens_per_second": the rate of them, as run.jsonl, summary.json and the tables name it.
std::string rate_name(const ModelConfig& model);

/// The value of a key that is not set.
struct KeyDefault {
  std::string_view key;
  Value value;
  std::span<const std::string_view> presets = {};  ///< Whose it is; empty: all of the family.
};

/// A parameter, or equal parts of what a file has in one tensor, one after another along its rows.
struct NamedRows {
  std::string name;
  int64_t part = 0;
  int64_t parts = 1;
  bool operator==(const NamedRows&) const = default;
};

/// Into how many pieces an axis may cut a model at most, and by which key.
struct ModelParts {
  std::string_view name;  ///< "heads"
  std::string_view key;
  int64_t count = 1;
  int64_t each = 1;                    ///< That a rank has at least.
  int64_t besides = 0;                 ///< Of them, those that `key` does not count,
  std::string_view besides_name = {};  ///< and what they are: "embedding and head".

  int64_t most_ranks() const { return count / each; }
};

/// The properties of a kind of model that are known without making it: a row in the only table of
/// model names. Its maker is in models/make.cpp.
struct ModelFamily {
  std::string_view name;
  DataKind data = DataKind::kTokens;
  std::span<const std::string_view> presets;
  std::span<const std::string_view> keys = {};  ///< Of [model], besides the preset.
  std::span<const KeyDefault> defaults = {};    ///< Of other keys.
  /// The data that presets were published with, where training begins with other: of a model that is named, not of a job.
  std::span<const KeyDefault> published = {};
  int64_t smallest_grain = 1;             ///< Samples that a forward in training needs.
  std::span<const Precision> precisions;  ///< Precisions in which its layers compute.
  /// Of layout::kAxisNames, beside those of data: axes by which its layers are cut.
  std::span<const std::string_view> cut_axes = {};
  /// What the ranks of one of cut_axes share out, and where `facts` says the layers, those of "pp"; null without
  /// such an axis.
  ModelParts (*parts)(const Config& config, std::string_view axis) = nullptr;

  /// The parameters that a tensor of a file has, by its name there. Null: that of the same name.
  std::vector<NamedRows> (*renamed)(std::string name) = nullptr;
  /// How the names begin of parameters that the file of model.init must have, and of no others; the rest begins
  /// with random values where it has none of their shape. Empty: all.
  std::string_view trunk = {};

  /// Replaces "auto" by the preset's sizes; null: the family has none.
  void (*resolve)(ModelConfig& model) = nullptr;
  /// Returns contradictions between sizes; null: there are none.
  std::vector<Contradiction> (*check)(const Config& config) = nullptr;
  /// Describes the sizes; `classes`: tokens or classes of the data.
  std::string (*describe)(const ModelConfig& model, int64_t classes);
  /// Of a resolved configuration; of a cut model the operations of the rank that has most of it. Null:
  /// facts are counted by running the model.
  ModelFacts (*facts)(const Config& config) = nullptr;
  /// The products of an MLP, first to last, of so many samples. Null: its ranks exchange activations.
  std::vector<cost::LinearRegion> (*mlp)(const Config& config, int64_t samples) = nullptr;
};

std::span<const ModelFamily> model_families();

/// The presets of all families, in their order: the values of model.preset.
std::span<const std::string_view> preset_names();

/// The family of a preset; for one that find_contradictions() rejects, the first family.
const ModelFamily& family_of(std::string_view preset);
const ModelFamily& family_of(const ModelConfig& model);

/// Whether a plan needs facts that were counted: its family names none, or the model is cut.
bool needs_counting(const Config& config);
/// Of a resolved configuration, for which `counted` are the facts if needs_counting(): operations are
/// those that the family names, if it does; bytes, parameters and collectives those counted.
ModelFacts facts_of_model(const Config& config, const std::optional<ModelFacts>& counted);
/// Of the uncut model: what all of its ranks have together.
ModelFacts facts_of_whole(const Config& config, const ModelFacts& facts);

/// Those of the family's defaults that are the preset's.
std::vector<KeyDefault> defaults_of(const ModelConfig& model);

/// The data that the preset was published with; empty for those that were not, and where training begins with it.
std::vector<KeyDefault> published_data(const ModelConfig& model);

/// The model's sizes, those of its preset if they are not set.
ModelConfig resolved(ModelConfig model);

/// With the vocabulary of the data, where the family has one and the model leaves it open.
ModelConfig with_vocabulary(ModelConfig model, int64_t of_data);

/// False for a key of [model] that its family does not have.
bool is_read(const ModelConfig& model, std::string_view key);

/// The kind of a configuration's data.
DataKind data_kind(const Config& config);

}  // namespace hanji::plan
