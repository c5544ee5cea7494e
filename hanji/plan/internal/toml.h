#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/plan/load_config.h"
#include "hanji/plan/schema.h"

namespace hanji::plan {

enum class TomlKind : uint8_t {
  kValue,         ///< A member of a known table.
  kUnknownTable,  ///< Its members are not listed.
  kNotATable,     ///< The name of a known table, used for a value.
};

/// One thing that a TOML file sets.
struct TomlEntry {
  TomlKind kind = TomlKind::kValue;
  std::string key;  ///< "train.steps"
  Origin origin;
  /// Or why there is none for the key of that name.
  Result<Value> value = base::internal("no value");
  std::string word = {};  ///< The text as written, if it is a text.
};

struct TomlSyntaxError {
  Origin origin;
  std::string message;
};

struct TomlDocument {
  std::vector<TomlEntry> entries;
  std::optional<TomlSyntaxError> syntax_error;  ///< Then there are no entries.
};

/// Parses any bytes; neither throws nor recurses deeper than the parser's fixed limit.
TomlDocument read_toml_document(std::string_view text, const std::string& file_name);

}  // namespace hanji::plan
