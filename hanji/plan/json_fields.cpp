#include "hanji/plan/internal/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/limits.h"
#include "hanji/base/units.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/schema.h"

namespace hanji::plan {
namespace {

constexpr size_t kLongestText = 1 << 20;
constexpr size_t kMaxMistakes = 2000;  // letters, of mistakes that are named
const base::Json kNothing = base::Json::object();
const base::Json kEmptyList = base::Json::array();

base::Json value_to_json(const Key& key, const Value& value) {
  if (key.type == KeyType::kChoice) {
    return key.choices[static_cast<size_t>(std::get<int64_t>(value))];
  }
  return std::visit([](const auto& one) { return base::Json(one); }, value);
}

std::string member_of(const Key& key) {
  return std::string(key.name.substr(key.name.find('.') + 1));
}

/// A table all of whose keys are silent where they are not set.
bool is_rare(std::string_view table) {
  return std::ranges::all_of(schema(), [&](const Key& key) {
    return key.rare || key.name.substr(0, key.name.find('.')) != table;
  });
}

Value read_reals(const Key& key, const std::string& name, JsonFields& table) {
  std::vector<double> values;
  for (const base::Json& one : table.list(name.c_str(), base::kMaxRanks)) {
    if (!one.is_number()) {
      table.fail(name, "has a member that is no number");
      break;
    }
    values.push_back(one.get<double>());
  }
  if (const Status status = check_value(key, values); !status.ok()) {
    table.fail(name, status.message());
  }
  return values;
}

Value read_stages(const Key& key, const std::string& name, JsonFields& table) {
  std::string text = table.text(name.c_str());
  if (const Status status = check_value(key, text); !status.ok()) {
    table.fail(name, status.message());
  }
  return text;
}

Value read_choice(const Key& key, const std::string& name, JsonFields& table) {
  const std::string word = table.text(name.c_str());
  const auto index = parse_choice(key, word);
  if (index.ok()) return *index;
  table.fail(name, index.status().message());
  return int64_t{0};
}

Value read_value(const Key& key, JsonFields& table) {
  const std::string name = member_of(key);
  switch (key.type) {
    case KeyType::kInteger:
    case KeyType::kBytes:
      return table.integer(name.c_str(), static_cast<int64_t>(key.min),
                           static_cast<int64_t>(key.max));
    case KeyType::kReal:
    case KeyType::kSeconds: return table.real(name.c_str(), key.min, key.max);
    case KeyType::kBoolean: return table.boolean(name.c_str());
    case KeyType::kText: return table.text(name.c_str());
    case KeyType::kStages: return read_stages(key, name, table);
    case KeyType::kChoice: return read_choice(key, name, table);
    case KeyType::kReals: return read_reals(key, name, table);
  }
  return int64_t{0};
}

}  // namespace

JsonFields::JsonFields(const base::Json& json, std::string path)
    : json_(&json), path_(std::move(path)) {
  if (json.is_object()) return;
  json_ = &kNothing;
  status_ = base::corrupt(fmt::format("{} is not an object", path_));
}

void JsonFields::fail(std::string_view name, std::string_view why) {
  if (json_ == &kNothing) return;  // which is a mistake already
  merge(base::corrupt(fmt::format("{}.{} {}", path_, name, why)));
}

void JsonFields::merge(const Status& status) {
  if (status_.ok()) {
    status_ = status;
  } else if (!status.ok() && status_.message().size() < kMaxMistakes) {
    status_ = base::corrupt(status_.message() + "; " + status.message());
  }
}

bool JsonFields::has(const std::string& name) const { return json_->contains(name); }

const base::Json* JsonFields::find(const char* name) {
  seen_.insert(name);
  const auto found = json_->find(name);
  if (found != json_->end()) return &*found;
  fail(name, "is missing");
  return nullptr;
}

int64_t JsonFields::integer(const char* name, int64_t min, int64_t max) {
  const base::Json* value = find(name);
  if (value == nullptr) return min;
  const bool fits =
      value->is_number_integer() &&
      (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits) {
    fail(name, "is not a 64-bit integer");
    return min;
  }
  const int64_t number = value->get<int64_t>();
  if (number >= min && number <= max) return number;
  fail(name, fmt::format("is {}, outside {} to {}", number, min, max));
  return min;
}

double JsonFields::real(const char* name, double min, double max) {
  const base::Json* value = find(name);
  if (value == nullptr) return min;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (number >= min && number <= max) return number;  // false for NaN
  fail(name, fmt::format("is not a number in {} to {}", min, max));
  return min;
}

bool JsonFields::boolean(const char* name) {
  const base::Json* value = find(name);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, "is neither true nor false");
  return false;
}

std::string JsonFields::text(const char* name) {
  const base::Json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) {
    const auto& found = value->get_ref<const std::string&>();
    if (found.size() <= kLongestText) return found;
  }
  fail(name, "is not a text of at most 64 KiB");
  return {};
}

const base::Json& JsonFields::list(const char* name, size_t max_size) {
  const base::Json* value = find(name);
  if (value == nullptr) return kEmptyList;
  if (value->is_array() && value->size() <= max_size) return *value;
  fail(name, fmt::format("is not a list of at most {}", base::counted(max_size, "member")));
  return kEmptyList;
}

JsonFields JsonFields::object(const char* name) {
  const base::Json* value = find(name);
  return {value == nullptr ? kNothing : *value, path_ + "." + name};
}

Status JsonFields::status() const {
  JsonFields all = *this;
  for (const auto& [name, value] : json_->items()) {
    if (!seen_.contains(name)) all.fail(name, "is not a member it may have");
  }
  return all.status_;
}

base::Json config_to_json(const Config& config) {
  base::Json json;
  const Config defaults;
  for (const Key& key : schema()) {
    const bool silent = key.rare || !is_read(config.model, key.name);
    if (silent && key.get(config) == key.get(defaults)) continue;
    const std::string table(key.name.substr(0, key.name.find('.')));
    json[table][member_of(key)] = value_to_json(key, key.get(config));
  }
  return json;
}

Result<Config> config_from_json(JsonFields fields) {
  Config config;
  for (std::string_view name : tables()) {
    if (!fields.has(std::string(name).c_str()) && is_rare(name)) continue;
    JsonFields table = fields.object(std::string(name).c_str());
    for (const Key& key : schema()) {
      const bool silent = key.rare || !is_read(config.model, key.name);
      const bool absent = silent && !table.has(member_of(key));
      if (absent || !key.name.starts_with(std::string(name) + ".")) continue;
      key.set(config, read_value(key, table));
    }
    fields.merge(table.status());
  }
  HANJI_RETURN_IF_ERROR(fields.status());
  return config;
}

}  // namespace hanji::plan
