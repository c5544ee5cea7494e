#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/plan/config.h"

namespace hanji::plan {

/// How a key's value is written.
enum class KeyType : uint8_t {
  kInteger,  ///< 12, or "auto" where the key allows it
  kReal,     ///< 1e-3
  kBoolean,  ///< true, false
  kText,     ///< any text
  kChoice,   ///< one of the key's words
  kBytes,    ///< 4096 or "64MiB"
  kSeconds,  ///< 300 or "5m"
  kReals,    ///< [0.25, 0.75]
  kStages,   ///< "center_crop, flip", or a list of tables
};

/// The value of a key: kInteger, kBytes int64 (kAuto for "auto"); kReal, kSeconds double; kChoice
/// the index of the word.
using Value = std::variant<int64_t, double, bool, std::string, std::vector<double>>;

/// A word that people try and that is turned down, with the reason and the way out.
struct Refusal {
  std::string_view word;
  std::string_view reason;
};

/// One key of the configuration.
struct Key {
  std::string_view name;  ///< "train.steps"
  KeyType type = KeyType::kInteger;
  std::string_view unit;  ///< "steps", "samples", ...; empty: none
  double min = 0;         ///< Numbers only, inclusive; of each member for kReals.
  double max = 0;
  bool may_be_auto = false;
  std::span<const std::string_view> choices = {};
  std::span<const Refusal> refusals = {};
  std::string_view doc;
  bool rare = false;  ///< Neither shown nor saved where it has its default.
  std::function<Value(const Config&)> get;
  std::function<void(Config&, const Value&)> set;
};

/// Every key, table by table. The only list: the parser, --print-config, the documentation and the
/// plan's JSON are made from it.
std::span<const Key> schema();

/// nullptr if there is none.
const Key* find_key(std::string_view name);

/// Keys that people try and that are turned down.
std::span<const Refusal> refused_keys();

/// The tables: "run", "model", ...
std::span<const std::string_view> tables();

/// As one would write it in a TOML file; parse_value() reads it back.
std::string format_value(const Key& key, const Value& value);

/// Checks a value's range, words and refusals; the type is taken as right.
///
/// Errors  invalid_argument, or unsupported for a refusal: "is -1, but must be at least 1".
Status check_value(const Key& key, const Value& value);

/// A value as the command line gives it; quotes around text are optional.
///
/// Errors  as check_value(), and for a text that is not of the key's type.
Result<Value> parse_value(const Key& key, std::string_view text);

/// The index of a word among the key's choices.
///
/// Errors  invalid_argument with the nearest word; unsupported for a refusal.
Result<Value> parse_choice(const Key& key, std::string_view word);

/// "an integer, at least 1", "one of cosine, constant, wsd".
std::string describe_type(const Key& key);

/// One table of keys per section, for the documentation.
std::string schema_markdown();

}  // namespace hanji::plan
