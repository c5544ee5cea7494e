#include "hanji/base/text.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace hanji::base {
namespace {

/// The lowest and highest byte that may follow `lead`, by table 3-7 of the Unicode standard.
std::pair<uint8_t, uint8_t> second_byte_range(uint8_t lead) {
  switch (lead) {
    case 0xE0: return {0xA0, 0xBF};
    case 0xED: return {0x80, 0x9F};
    case 0xF0: return {0x90, 0xBF};
    case 0xF4: return {0x80, 0x8F};
    default: return {0x80, 0xBF};
  }
}

size_t length_by_lead(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

constexpr std::string_view kHexDigits = "0123456789abcdef";

void append_hex(std::string& out, char c) {
  const auto byte = static_cast<uint8_t>(c);
  out += kHexDigits[byte >> 4];
  out += kHexDigits[byte & 15];
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  const auto byte = static_cast<uint8_t>(c);
  if (byte >= 0x20 && byte != 0x7F) {
    out += c;
    return;
  }
  out += "\\u00";
  append_hex(out, c);
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`, or `limit` + 1
/// where it takes more. Lengths differ by `limit` at most. `rows` is working memory.
/// Cost    |a| * min(|b|, 2 limit + 1): cells further from the diagonal than `limit` are above it.
size_t edit_distance(std::string_view a, std::string_view b, size_t limit,
                     std::vector<size_t>& rows) {
  const size_t width = b.size() + 1;
  rows.assign(3 * width, limit + 1);
  const std::span<size_t> cells(rows);
  std::span<size_t> before_last = cells.first(width), last = cells.subspan(width, width),
                    current = cells.last(width);
  for (size_t j = 0; j <= std::min(b.size(), limit); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    const size_t begin = i > limit ? i - limit : 1, end = std::min(b.size(), i + limit);
    current[begin - 1] = begin == 1 ? i : limit + 1;
    for (size_t j = begin; j <= end; ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] != b[j - 1]);
      current[j] = std::min({last[j] + 1, current[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) current[j] = std::min(current[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, current);
  }
  return std::min(last[b.size()], limit + 1);
}

}  // namespace

std::optional<std::string> nearest(std::string_view word,
                                   std::span<const std::string_view> candidates,
                                   size_t max_distance) {
  std::optional<std::string> best;
  std::vector<size_t> rows;
  size_t best_distance = max_distance + 1;
  for (const std::string_view candidate : candidates) {
    if (best_distance == 0) break;
    const auto [less, more] = std::minmax({word.size(), candidate.size()});
    if (more - less >= best_distance) continue;  // as many insertions at least
    const size_t distance = edit_distance(word, candidate, best_distance - 1, rows);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = std::string(candidate);
  }
  return best;
}

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t length = length_by_lead(lead);
  if (length <= 1) return length;
  if (text.size() < length) return 0;
  auto [lowest, highest] = second_byte_range(lead);
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < lowest || byte > highest) return 0;
    lowest = 0x80;
    highest = 0xBF;
  }
  return length;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string xml_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) {
      out += "\\u0000";
      append_hex(out, text[0]);
    }
    if (length == 1) append_escaped(out, text[0]);
    if (length > 1) out += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out + '"';
}

bool holds_bytes(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0 || text[0] == '\0') return true;
    text.remove_prefix(length);
  }
  return false;
}

std::string escape_bytes(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0 || text[0] == '\0') {
      out += '\0';
      append_hex(out, text[0]);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string unescape_bytes(std::string text) {
  if (text.find('\0') == text.npos) return text;
  std::string out;
  std::string_view rest = text;
  for (size_t at = rest.find('\0'); at != rest.npos; at = rest.find('\0')) {
    const std::string_view digits = rest.substr(at + 1, 2);
    const bool is_byte = digits.size() == 2 && digits.find_first_not_of(kHexDigits) == digits.npos;
    out += rest.substr(0, at);
    out += is_byte ? static_cast<char>(kHexDigits.find(digits[0]) << 4 | kHexDigits.find(digits[1]))
                   : '\0';
    rest.remove_prefix(at + (is_byte ? 3 : 1));
  }
  return out += rest;
}

size_t text_columns(std::string_view text) {
  size_t columns = 0;
  for (; !text.empty(); ++columns) text.remove_prefix(std::max<size_t>(1, utf8_length(text)));
  return columns;
}

namespace {

std::string wrap_line(std::string_view line, size_t columns, size_t hanging) {
  if (text_columns(line) <= columns) return std::string(line);
  const size_t indent = std::min(line.find_first_not_of(' '), line.size());
  std::string out, last(indent, ' ');
  bool begins = true;
  for (const std::string_view word : split(line.substr(indent), ' ')) {
    if (!begins && text_columns(last) + 1 + text_columns(word) > columns) {
      out += last + "\n";
      last.assign(indent + hanging, ' ');
      begins = true;
    }
    last.append(begins ? "" : " ").append(word);
    begins = false;
  }
  return out + last;
}

}  // namespace

std::string wrap(std::string_view text, int columns, int hanging) {
  std::string out;
  for (const std::string_view line : split(text, '\n')) {
    out += wrap_line(line, static_cast<size_t>(columns), static_cast<size_t>(hanging)) + "\n";
  }
  out.pop_back();
  return out;
}

}  // namespace hanji::base
