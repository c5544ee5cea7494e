#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hanji::base {

/// The candidate nearest to `word` (the first of equals), by insertions, deletions, replacements and
/// swaps of neighbours; nothing within `max_distance` of them.
/// Cost    (2 max_distance + 1) * |word| for each candidate of such a length.
std::optional<std::string> nearest(std::string_view word,
                                   std::span<const std::string_view> candidates,
                                   size_t max_distance = 2);

/// The parts between separators, one more than there are separators.
std::vector<std::string_view> split(std::string_view text, char separator);

/// `text` as the content of an XML or SVG element.
std::string xml_escape(std::string_view text);

/// `text` as a JSON string with its quotes: pure ASCII but for valid UTF-8, which is kept; bytes
/// that are no UTF-8 become U+FFFD.
std::string json_quote(std::string_view text);

/// Bytes of the UTF-8 character that opens `text`; 0 if none does (overlong forms, surrogates and
/// cut characters are none).
size_t utf8_length(std::string_view text);

}  // namespace hanji::base
