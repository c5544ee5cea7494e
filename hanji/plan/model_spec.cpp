#include "hanji/plan/model_spec.h"

#include <algorithm>
#include <array>

namespace hanji::plan {
namespace {

struct PresetSizes {
  std::string_view name;
  ModelSpec spec;
};

constexpr int64_t kCharacters = 256;
constexpr int64_t kGpt2Vocabulary = 50257;

const std::array kPresetSizes = {
    PresetSizes{"nano", {2, 2, 32, 32, kCharacters, true, 0.0}},
    PresetSizes{"char", {4, 4, 128, 64, kCharacters, true, 0.0}},
    PresetSizes{"baby", {6, 6, 384, 256, kCharacters, true, 0.0}},
    PresetSizes{"gpt2", {12, 12, 768, 1024, kGpt2Vocabulary, true, 0.0}},
};

}  // namespace

int64_t ModelSpec::kv_width() const {
  return kv_heads == 0 ? width : width / std::max<int64_t>(1, heads) * kv_heads;
}

int64_t ModelSpec::num_parameters() const {
  const int64_t shared = 2 * (width - kv_width());  // keys and values
  const int64_t per_layer = 12 * width * width + 13 * width - shared * (width + 1);
  const int64_t head = tied ? 0 : vocabulary * width;
  return vocabulary * width + block * width + layers * per_layer + 2 * width + head;
}

std::vector<int64_t> ModelSpec::parameter_sizes() const {
  const int64_t c = width, qkv = c + 2 * kv_width();
  std::vector<int64_t> sizes = {vocabulary * c, block * c};
  for (int64_t layer = 0; layer < layers; ++layer) {
    sizes.insert(sizes.end(), {c, c, qkv * c, qkv, c * c, c});          // norm, qkv, projection
    sizes.insert(sizes.end(), {c, c, 4 * c * c, 4 * c, 4 * c * c, c});  // norm, up, down
  }
  sizes.insert(sizes.end(), {c, c});
  if (!tied) sizes.push_back(vocabulary * c);
  return sizes;
}

Result<ModelSpec> preset(std::string_view name) {
  std::string known;
  for (const PresetSizes& row : kPresetSizes) {
    if (row.name == name) return row.spec;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return base::invalid_argument("preset '" + std::string(name) + "' is unknown; presets: " + known);
}

ModelSpec resolve_model(const ModelConfig& config) {
  const auto or_else = [](int64_t value, int64_t otherwise) {
    return value == kAuto ? otherwise : value;
  };
  const auto found = preset(config.preset);
  ModelSpec model = found.ok() ? *found : ModelSpec{};
  model.layers = or_else(config.layers, model.layers);
  model.heads = or_else(config.heads, model.heads);
  model.kv_heads = or_else(config.kv_heads, 0);
  model.width = or_else(config.width, model.width);
  model.block = or_else(config.block, model.block);
  model.vocabulary = or_else(config.vocabulary, model.vocabulary);
  model.tied = config.tied;
  model.dropout = config.dropout;
  return model;
}

}  // namespace hanji::plan
