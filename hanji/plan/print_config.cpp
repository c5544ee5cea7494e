#include <fmt/format.h>

#include "hanji/plan/load_config.h"
#include "hanji/plan/model_spec.h"
#include "hanji/plan/schema.h"

namespace hanji::plan {
namespace {

/// The config with the preset's sizes in place of "auto".
Config with_preset(Config config) {
  const ModelSpec model = resolve_model(config.model);
  config.model.layers = model.layers;
  config.model.heads = model.heads;
  config.model.width = model.width;
  config.model.block = model.block;
  return config;
}

}  // namespace

std::string print_config(const LoadedConfig& loaded) {
  const Config shown = with_preset(loaded.config);
  std::string out;
  for (std::string_view table : tables()) {
    out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", table);
    for (const Key& key : schema()) {
      if (!key.name.starts_with(std::string(table) + ".")) continue;
      const Value value = key.get(shown);
      if (key.rare && value == key.get(Config())) continue;
      const std::string line =
          fmt::format("{} = {}", key.name.substr(table.size() + 1), format_value(key, value));
      const auto found = loaded.origins.find(key.name);
      std::string origin =
          found == loaded.origins.end() ? loaded.base_source : found->second.to_string();
      if (value != key.get(loaded.config)) {
        origin = fmt::format("preset {}", name_of(loaded.config.model.preset));
      }
      out += fmt::format("{:<40}  # {}\n", line, origin);
    }
  }
  return out;
}

}  // namespace hanji::plan
