#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/terminal.h"

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
/// that are no UTF-8 are escaped as in escape_bytes().
std::string json_quote(std::string_view text);

/// `text`, which may hold any bytes, as UTF-8: each byte that is no part of UTF-8 becomes U+0000 and two
/// hexadecimal digits, and so does U+0000. In a path, which never holds U+0000, nothing else changes.
std::string escape_bytes(std::string_view text);
/// What escape_bytes() was given. U+0000 without two such digits is kept.
std::string unescape_bytes(std::string text);
/// True if escape_bytes() would change `text`.
bool holds_bytes(std::string_view text);

/// Bytes of the UTF-8 character that opens `text`; 0 if none does (overlong forms, surrogates and
/// cut characters are none).
size_t utf8_length(std::string_view text);

/// Columns that `text`, UTF-8, takes in a terminal: one for each character.
size_t text_columns(std::string_view text);

/// `text` in lines of at most `columns`, broken at blanks. A line keeps the blanks before its first word, and what
/// is broken off a line is indented by them and `hanging` more. A word that is longer stays whole.
std::string wrap(std::string_view text, int columns = kTerminalColumns, int hanging = 0);

}  // namespace hanji::base
