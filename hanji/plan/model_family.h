#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/plan/config.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/schema.h"

namespace hanji::plan {

/// What a model learns from; kOwn: a source that a program brings with its model.
enum class DataKind : uint8_t { kTokens, kImages, kOwn };

/// "tokens", "images", "targets": those that a loss is divided by.
std::string_view targets_of(DataKind kind);

/// The value of a key where nobody sets it.
struct KeyDefault {
  std::string_view key;
  Value value;
};

/// All that is known of a kind of model without building it: its row in the one table that knows
/// models by name. Its maker lies in models/make.cpp.
struct ModelFamily {
  std::string_view name;
  DataKind data = DataKind::kTokens;
  std::span<const std::string_view> presets;
  std::span<const std::string_view> keys;  ///< Of [model], beside the preset.
  std::span<const KeyDefault> defaults;    ///< Of other keys.
  int64_t smallest_grain = 1;              ///< Samples that a forward in training needs.
  std::span<const Precision> precisions;   ///< That its layers compute in.

  /// Puts the preset's sizes in place of "auto".
  void (*resolve)(ModelConfig& model);
  /// Sizes that exclude each other.
  std::vector<Contradiction> (*check)(const Config& config);
  /// The sizes in words; `classes`: tokens or classes of the data.
  std::string (*describe)(const ModelConfig& model, int64_t classes);
  /// Of a resolved configuration. Null: facts are counted by who can run the model.
  ModelFacts (*facts)(const Config& config);
};

std::span<const ModelFamily> model_families();

/// Of all families, in their order: the words of model.preset.
std::span<const std::string_view> preset_names();

/// The family of a preset; of one that find_contradictions() refuses, the first.
const ModelFamily& family_of(std::string_view preset);
const ModelFamily& family_of(const ModelConfig& model);

/// The model's sizes, its preset's where they were left open.
ModelConfig resolved(ModelConfig model);

/// False for a key of [model] that is none of its family's.
bool is_read(const ModelConfig& model, std::string_view key);

/// What the data of a configuration is.
DataKind data_kind(const Config& config);

}  // namespace hanji::plan
