// Reading, checking and writing single values of the schema.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/plan/schema.h"

namespace hanji::plan {
namespace {

/// "0.001", "16", "1e-12": the shortest text that reads back as the same number.
std::string number(double value) {
  if (std::abs(value) < 1e15 && value == std::floor(value)) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::string join(std::span<const std::string_view> words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

/// `value` as a reader of an error message should see it: one line, no control characters, short.
std::string shown(std::string_view value) {
  constexpr size_t kLongest = 60;
  std::string text = base::json_quote(value.substr(0, kLongest));
  if (value.size() > kLongest) text += "...";
  return text;
}

Status check_number(const Key& key, double value, std::string_view name) {
  const std::string unit = key.unit.empty() ? "" : fmt::format(" ({})", key.unit);
  if (!std::isfinite(value)) {
    return base::invalid_argument(fmt::format("{} is not a finite number", name));
  }
  if (value < key.min) {
    return base::invalid_argument(fmt::format("{} is {}, but must be at least {}{}", name,
                                              number(value), number(key.min), unit));
  }
  if (value > key.max) {
    return base::invalid_argument(fmt::format("{} is {}, but must be at most {}{}", name,
                                              number(value), number(key.max), unit));
  }
  return {};
}

Status wrong_type(const Key& key, std::string_view text) {
  return base::invalid_argument(
      fmt::format("{} must be {}, not {}", key.name, describe_type(key), shown(text)));
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// "[0.5, .5]", "0.5,.5" or "[]".
std::optional<std::vector<double>> parse_reals(std::string_view text) {
  if (text.starts_with('[') != text.ends_with(']')) return std::nullopt;
  if (text.starts_with('[')) text = trim(text.substr(1, text.size() - 2));
  std::vector<double> values;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const auto value = parse_real(trim(text.substr(0, comma)));
    if (!value) return std::nullopt;
    values.push_back(*value);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return values;
}

std::string_view without_quotes(std::string_view text) {
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                      text.front() == text.back();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

Result<Value> parse_by_type(const Key& key, std::string_view text) {
  switch (key.type) {
    case KeyType::kInteger:
      if (key.may_be_auto && without_quotes(text) == "auto") return Value(kAuto);
      if (const auto value = parse_integer(text)) return Value(*value);
      break;
    case KeyType::kReal:
      if (const auto value = parse_real(text)) return Value(*value);
      break;
    case KeyType::kBoolean:
      if (text == "true" || text == "false") return Value(text == "true");
      break;
    case KeyType::kText:
    case KeyType::kStages: return Value(std::string(without_quotes(text)));
    case KeyType::kChoice: return parse_choice(key, without_quotes(text));
    case KeyType::kBytes:
      if (const auto value = base::parse_bytes(without_quotes(text)); value.ok()) {
        return Value(*value);
      }
      break;
    case KeyType::kSeconds:
      if (const auto value = parse_real(text)) return Value(*value);
      if (const auto value = base::parse_seconds(without_quotes(text)); value.ok()) {
        return Value(*value);
      }
      break;
    case KeyType::kReals:
      if (const auto value = parse_reals(text)) return Value(*value);
      break;
  }
  return wrong_type(key, without_quotes(text));
}

std::string range_of(const Key& key) {
  const std::string unit = key.unit.empty() ? "" : fmt::format(" ({})", key.unit);
  if (key.max >= 1e9) return fmt::format(", at least {}{}", number(key.min), unit);
  return fmt::format(", {} to {}{}", number(key.min), number(key.max), unit);
}

}  // namespace

std::string describe_type(const Key& key) {
  const std::string or_auto = key.may_be_auto ? ", or \"auto\"" : "";
  switch (key.type) {
    case KeyType::kInteger: return "an integer" + range_of(key) + or_auto;
    case KeyType::kReal: return "a number" + range_of(key);
    case KeyType::kBoolean: return "true or false";
    case KeyType::kText: return "text";
    case KeyType::kStages: return "stages like \"center_crop, flip(probability = 0.5)\"";
    case KeyType::kChoice: return "one of " + join(key.choices);
    case KeyType::kBytes: return "bytes like 4096 or \"64MiB\"";
    case KeyType::kSeconds: return "seconds like 300 or \"5m\"";
    case KeyType::kReals: return "a list of numbers like [0.25, 0.75]";
  }
  return "";
}

Result<Value> parse_choice(const Key& key, std::string_view word) {
  for (size_t i = 0; i < key.choices.size(); ++i) {
    if (key.choices[i] == word) return Value(static_cast<int64_t>(i));
  }
  for (const Refusal& refusal : key.refusals) {
    if (refusal.word == word) {
      return base::unsupported(
          fmt::format("{} = {} is rejected: {}", key.name, shown(word), refusal.reason));
    }
  }
  return wrong_type(key, word);
}

Status check_value(const Key& key, const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value); integer && key.type != KeyType::kChoice) {
    if (key.may_be_auto && *integer == kAuto) return {};
    return check_number(key, static_cast<double>(*integer), key.name);
  }
  if (const auto* real = std::get_if<double>(&value)) return check_number(key, *real, key.name);
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    for (size_t i = 0; i < list->size(); ++i) {
      HANJI_RETURN_IF_ERROR(check_number(key, (*list)[i], fmt::format("{}[{}]", key.name, i)));
    }
  }
  if (key.type == KeyType::kStages) {
    return parse_image_stages(std::get<std::string>(value)).status().at(key.name);
  }
  if (const auto* text = std::get_if<std::string>(&value); text && text->find('\0') != text->npos) {
    return base::invalid_argument(fmt::format("{} holds a zero byte", key.name));
  }
  return {};
}

Result<Value> parse_value(const Key& key, std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(Value value, parse_by_type(key, trim(text)));
  // Only the word "auto" means auto; the number behind it is as wrong as any below the range.
  const auto* integer = std::get_if<int64_t>(&value);
  if (integer && key.type == KeyType::kInteger && without_quotes(trim(text)) != "auto") {
    HANJI_RETURN_IF_ERROR(check_number(key, static_cast<double>(*integer), key.name));
  }
  HANJI_RETURN_IF_ERROR(check_value(key, value));
  return value;
}

std::string format_value(const Key& key, const Value& value) {
  switch (key.type) {
    case KeyType::kChoice: {
      const auto index = static_cast<size_t>(std::get<int64_t>(value));
      return fmt::format("\"{}\"", index < key.choices.size() ? key.choices[index] : "?");
    }
    case KeyType::kInteger:
    case KeyType::kBytes:
      if (key.may_be_auto && std::get<int64_t>(value) == kAuto) return "\"auto\"";
      return fmt::format("{}", std::get<int64_t>(value));
    case KeyType::kReal:
    case KeyType::kSeconds: return fmt::format("{}", std::get<double>(value));
    case KeyType::kBoolean: return std::get<bool>(value) ? "true" : "false";
    case KeyType::kText:
    case KeyType::kStages:
      return base::json_quote(base::escape_bytes(std::get<std::string>(value)));
    case KeyType::kReals:
      return fmt::format("[{}]", fmt::join(std::get<std::vector<double>>(value), ", "));
  }
  return "";
}

std::string schema_markdown() {
  constexpr std::string_view kNccl = "comm.nccl.";
  const Config defaults;
  std::string out;
  for (std::string_view table : tables()) {
    out += fmt::format("## {}\n\n| key | value | default | meaning |\n|---|---|---|---|\n", table);
    for (const Key& key : schema()) {
      const bool apart = key.name.starts_with(kNccl);
      if (apart || !key.name.starts_with(std::string(table) + ".")) continue;
      out += fmt::format("| `{}` | {} | `{}` | {} |\n", key.name, describe_type(key),
                         format_value(key, key.get(defaults)), key.doc);
    }
    out += "\n";
  }
  out +=
      "## comm.nccl\n\nVariables that NCCL reads, set for the ranks of this job alone, before it "
      "is "
      "loaded; values are texts or whole numbers.\n\n| key | meaning |\n|---|---|\n";
  for (const Key& key : schema()) {
    if (key.name.starts_with(kNccl)) out += fmt::format("| `{}` | {} |\n", key.name, key.doc);
  }
  return out + "\n";
}

}  // namespace hanji::plan
