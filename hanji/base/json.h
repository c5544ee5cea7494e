#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "hanji/base/status.h"

// Not installed: nlohmann's types stay out of our ABI. Include it in sources only.
namespace hanji::base {

/// Keeps the order of keys, so that files read as they were written.
using Json = nlohmann::ordered_json;

/// Parses hostile text; no exception leaves. Strings are what dump() was given: unescape_bytes().
/// Errors  kCorrupt with the byte where it stops making sense: also for a repeated key, invalid
///         UTF-8, more than `max_depth` brackets open at once, or more than `max_bytes`.
Result<Json> parse_json(std::string_view text, size_t max_depth = 64,
                        size_t max_bytes = size_t{64} << 20);

/// The text that parse_json() gives `json` back from, whatever bytes its strings hold (a path may hold
/// any): escape_bytes() of them. On one line, or with lines indented by `indent`.
std::string dump(const Json& json, int indent = -1);

}  // namespace hanji::base
