#include "hanji/plan/model_family.h"

#include <algorithm>
#include <array>

#include "hanji/plan/internal/families.h"

namespace hanji::plan {

std::string_view targets_of(DataKind kind) {
  switch (kind) {
    case DataKind::kTokens: return "tokens";
    case DataKind::kImages: return "images";
    case DataKind::kPairs: return "pairs";
    case DataKind::kOwn: break;
  }
  return "targets";
}

std::span<const ModelFamily> model_families() {
  static const std::array families = {gpt_family(), resnet_family(), evoformer_family(),
                                      pairformer_family(), module_family()};
  return families;
}

std::span<const std::string_view> preset_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const ModelFamily& one : model_families()) {
      all.insert(all.end(), one.presets.begin(), one.presets.end());
    }
    return all;
  }();
  return names;
}

const ModelFamily& family_of(std::string_view preset) {
  const auto families = model_families();
  const auto found = std::ranges::find_if(families, [&](const ModelFamily& one) {
    return std::ranges::find(one.presets, preset) != one.presets.end();
  });
  return found == families.end() ? families.front() : *found;
}

const ModelFamily& family_of(const ModelConfig& model) { return family_of(model.preset); }

std::string rate_name(const ModelConfig& model) {
  return std::string(targets_of(family_of(model).data)) + "_per_second";
}

namespace {

/// Those that are the preset's.
std::vector<KeyDefault> of_preset(std::span<const KeyDefault> all, std::string_view preset) {
  std::vector<KeyDefault> its;
  for (const KeyDefault& one : all) {
    const bool is_its =
        one.presets.empty() || std::ranges::find(one.presets, preset) != one.presets.end();
    if (is_its) its.push_back(one);
  }
  return its;
}

}  // namespace

std::vector<KeyDefault> defaults_of(const ModelConfig& model) {
  return of_preset(family_of(model).defaults, model.preset);
}

std::vector<KeyDefault> published_data(const ModelConfig& model) {
  return of_preset(family_of(model).published, model.preset);
}

ModelConfig resolved(ModelConfig model) {
  if (const auto resolve = family_of(model).resolve) resolve(model);
  return model;
}

ModelConfig with_vocabulary(ModelConfig model, int64_t of_data) {
  const bool is_open = model.vocabulary == kAuto && is_read(model, "model.vocabulary");
  if (is_open) model.vocabulary = of_data;
  return model;
}

bool needs_counting(const Config& config) {
  return family_of(config.model).facts == nullptr || config.mesh.tp > 1 || config.mesh.pp > 1 ||
         config.mesh.cp > 1;
}

namespace {

ModelFacts merged_facts(const Config& config, const std::optional<ModelFacts>& counted) {
  const ModelFamily& family = family_of(config.model);
  if (family.facts == nullptr) return *counted;
  ModelFacts facts = family.facts(config);
  if (!needs_counting(config)) return facts;
  facts.parameters = counted->parameters;
  for (size_t i = 0; i < std::min(facts.layers.size(), counted->layers.size()); ++i) {
    LayerFacts& layer = facts.layers[i];
    const LayerFacts& as_counted = counted->layers[i];
    layer.kept = as_counted.kept;
    layer.flow = as_counted.flow;
    layer.backward = as_counted.backward;
    layer.calls = as_counted.calls;
    layer.copied = as_counted.copied;
    layer.tied = as_counted.tied;
    layer.for_weights = as_counted.for_weights;
  }
  return facts;
}

}  // namespace

/// Units of sharded states end with the backward that reaches their layers, so that it computes all.
ModelFacts facts_of_model(const Config& config, const std::optional<ModelFacts>& counted) {
  ModelFacts facts = merged_facts(config, counted);
  if (config.parallel.data == Sharding::kReplicas) return facts;
  for (LayerFacts& layer : facts.layers) layer.for_weights.reset();
  return facts;
}

ModelFacts facts_of_whole(const Config& config, const ModelFacts& facts) {
  const ModelFamily& family = family_of(config.model);
  if (config.mesh.axial > 1) {
    // Each of its ranks has all parameters and as many of the rows.
    ModelFacts whole = facts;
    for (LayerFacts& layer : whole.layers) {
      for (Product& one : layer.products) one.m *= static_cast<double>(config.mesh.axial);
    }
    return whole;
  }
  if (family.facts == nullptr || (config.mesh.tp == 1 && config.mesh.cp == 1)) return facts;
  Config whole = config;
  whole.mesh.tp = whole.mesh.cp = 1;
  return family.facts(whole);
}

DataKind data_kind(const Config& config) {
  if (family_of(config.model).data == DataKind::kOwn) return DataKind::kOwn;
  if (config.data.pairs != Pairs::kNone) return DataKind::kPairs;
  if (config.data.images != Images::kNone) return DataKind::kImages;
  const bool has_tokens =
      config.data.files.empty() || family_of(config.model).data == DataKind::kTokens;
  return has_tokens ? DataKind::kTokens : DataKind::kImages;
}

bool is_read(const ModelConfig& model, std::string_view key) {
  if (!key.starts_with("model.") || key == "model.preset") return true;
  const auto keys = family_of(model).keys;
  return std::ranges::find(keys, key) != keys.end();
}

}  // namespace hanji::plan
