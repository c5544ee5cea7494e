#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hanji/plan/load_config.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/schema.h"

namespace hanji::plan {
namespace {

bool is_default_of_family(const LoadedConfig& loaded, std::string_view key) {
  const auto defaults = defaults_of(loaded.config.model);
  return !loaded.origins.contains(key) && loaded.base_source == LoadedConfig().base_source &&
         std::ranges::find(defaults, key, &KeyDefault::key) != defaults.end();
}

}  // namespace
std::string print_config(const LoadedConfig& loaded) {
  Config shown = loaded.config;
  shown.model = resolved(shown.model);
  std::string out;
  for (std::string_view table : tables()) {
    std::string head = fmt::format("{}[{}]\n", out.empty() ? "" : "\n", table);
    for (const Key& key : schema()) {
      if (!key.name.starts_with(std::string(table) + ".")) continue;
      const Value value = key.get(shown);
      if (!is_read(shown.model, key.name)) continue;
      if (key.rare && value == key.get(Config())) continue;
      const std::string line =
          fmt::format("{} = {}", key.name.substr(table.size() + 1), format_value(key, value));
      const auto found = loaded.origins.find(key.name);
      std::string origin =
          found == loaded.origins.end() ? loaded.base_source : found->second.to_string();
      if (value != key.get(loaded.config) || is_default_of_family(loaded, key.name)) {
        origin = fmt::format("preset {}", loaded.config.model.preset);
      }
      out += fmt::format("{}{:<40}  # {}\n", std::exchange(head, ""), line, origin);
    }
  }
  return out;
}

}  // namespace hanji::plan
