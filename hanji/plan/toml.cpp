#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_UNRELEASED_FEATURES 0
#include "hanji/plan/internal/toml.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "hanji/base/text.h"

namespace hanji::plan {
namespace {

Origin origin_at(const std::string& file_name, const toml::source_position& position) {
  return {file_name, static_cast<int>(position.line), static_cast<int>(position.column)};
}

/// A node as an error message shows it: short, one line.
std::string shown(const toml::node& node) {
  constexpr size_t kLongest = 60;
  if (const auto* text = node.as_string()) {
    const std::string& value = text->get();
    return base::json_quote(std::string_view(value).substr(0, kLongest)) +
           (value.size() > kLongest ? "..." : "");
  }
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  std::ostringstream out;
  node.visit([&](const auto& value) {
    if constexpr (!toml::is_table<decltype(value)> && !toml::is_array<decltype(value)>) {
      out << value;
    }
  });
  return out.str();
}

Status wrong_type(const Key& key, const toml::node& node) {
  return base::invalid_argument(
      fmt::format("{} must be {}, not {}", key.name, describe_type(key), shown(node)));
}

Result<Value> read_reals(const Key& key, const toml::node& node) {
  const toml::array* list = node.as_array();
  if (list == nullptr) return wrong_type(key, node);
  std::vector<double> values;
  for (const toml::node& element : *list) {
    if (!element.is_number()) {
      return base::invalid_argument(fmt::format("{} must be {}, but one member is {}", key.name,
                                                describe_type(key), shown(element)));
    }
    values.push_back(*element.value<double>());
  }
  return Value(std::move(values));
}

/// Text stands for a value of another type where the key says so: "auto", "64MiB", "5m".
Result<Value> read_text(const Key& key, const std::string& text, const toml::node& node) {
  switch (key.type) {
    case KeyType::kText: return Value(text);
    case KeyType::kChoice: return parse_choice(key, text);
    case KeyType::kInteger:
      if (key.may_be_auto && text == "auto") return Value(kAuto);
      return wrong_type(key, node);
    case KeyType::kBytes:
    case KeyType::kSeconds: return parse_value(key, text);
    default: return wrong_type(key, node);
  }
}

Result<Value> read_number(const Key& key, const toml::node& node) {
  const bool whole = key.type == KeyType::kInteger || key.type == KeyType::kBytes;
  const bool fraction = key.type == KeyType::kReal || key.type == KeyType::kSeconds;
  if (whole && node.is_integer()) {
    const int64_t value = node.as_integer()->get();
    // A number is never "auto", not even the one that stands for it inside.
    if (static_cast<double>(value) < key.min) {
      Key strict = key;
      strict.may_be_auto = false;
      HANJI_RETURN_IF_ERROR(check_value(strict, Value(value)));
    }
    return Value(value);
  }
  if (fraction && node.is_number()) return Value(*node.value<double>());
  return wrong_type(key, node);
}

Result<Value> read_value(const Key& key, const toml::node& node) {
  if (const auto* text = node.as_string()) return read_text(key, text->get(), node);
  if (key.type == KeyType::kReals) return read_reals(key, node);
  if (key.type == KeyType::kBoolean && node.is_boolean()) return Value(node.as_boolean()->get());
  if (node.is_number()) return read_number(key, node);
  return wrong_type(key, node);
}

TomlEntry read_member(const std::string& name, const Origin& origin, const toml::node& node) {
  TomlEntry entry;
  entry.key = name;
  entry.origin = origin;
  if (const auto* text = node.as_string()) entry.word = text->get();
  const Key* key = find_key(name);
  if (key == nullptr) return entry;
  entry.value = read_value(*key, node);
  if (entry.value.ok()) {
    if (Status status = check_value(*key, *entry.value); !status.ok()) entry.value = status;
  }
  return entry;
}

}  // namespace

TomlDocument read_toml_document(std::string_view text, const std::string& file_name) {
  TomlDocument document;
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    document.syntax_error = {origin_at(file_name, parsed.error().source().begin),
                             std::string(parsed.error().description())};
    return document;
  }
  for (const auto& [name, node] : parsed.table()) {
    const Origin origin = origin_at(file_name, name.source().begin);
    const std::string table_name(name.str());
    const bool known = std::ranges::find(tables(), table_name) != tables().end();
    if (!node.is_table()) {
      const TomlKind kind = known ? TomlKind::kNotATable : TomlKind::kValue;
      document.entries.push_back({kind, table_name, origin});
    } else if (!known) {
      document.entries.push_back({TomlKind::kUnknownTable, table_name, origin});
    } else {
      for (const auto& [member, value] : *node.as_table()) {
        document.entries.push_back(read_member(table_name + "." + std::string(member.str()),
                                               origin_at(file_name, member.source().begin), value));
      }
    }
  }
  return document;
}

}  // namespace hanji::plan
