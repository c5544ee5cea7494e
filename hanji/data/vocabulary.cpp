#include "hanji/data/vocabulary.h"

#include <fmt/format.h>

#include <memory>

#include "hanji/base/json.h"
#include "hanji/data/internal/utf8.h"

namespace hanji::data {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

Status not_utf8(size_t offset) {
  return base::corrupt(fmt::format(
      "the text is not UTF-8 at byte {}; convert it, or set data.vocabulary = \"byte\"", offset));
}

// One pass with a table of ids: 4 bytes per code point up to the alphabet's last, which rises.
template <class T>
Result<TokenSource> encode_characters(std::string_view text, std::span<const char32_t> alphabet,
                                      TokenWidth width) {
  std::vector<int32_t> ids(size_t{alphabet.back()} + 1, -1);
  for (size_t i = 0; i < alphabet.size(); ++i) ids[alphabet[i]] = static_cast<int32_t>(i);
  auto tokens = std::make_shared<std::vector<T>>();
  tokens->reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const char32_t value = internal::next_code_point(text, offset);
    if (value == internal::kInvalid) return not_utf8(begin);
    if (value >= ids.size() || ids[value] < 0) {
      return base::invalid_argument(
          fmt::format("character '{}' (U+{:04X}) at byte {} is not among the {} of the vocabulary; "
                      "leave it out, or train with data.vocabulary = \"byte\"",
                      text.substr(begin, offset - begin), static_cast<uint32_t>(value), begin,
                      alphabet.size()));
    }
    tokens->push_back(static_cast<T>(ids[value]));
  }
  const auto bytes = std::as_bytes(std::span<const T>(*tokens));
  return TokenSource(std::move(tokens), bytes, width);
}

}  // namespace

Vocabulary Vocabulary::bytes() { return Vocabulary({}); }

Result<Vocabulary> Vocabulary::characters(std::string_view text) {
  if (text.empty()) return base::corrupt("an empty text has no characters; name another text");
  // Of each code point up to the text's last; bits take three times as long.
  std::vector<char> seen;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const char32_t value = internal::next_code_point(text, offset);
    if (value == internal::kInvalid) return not_utf8(begin);
    if (value >= seen.size()) seen.resize(size_t{value} + 1);
    seen[value] = true;
  }
  std::vector<char32_t> code_points;
  for (size_t value = 0; value < seen.size(); ++value) {
    if (seen[value]) code_points.push_back(static_cast<char32_t>(value));
  }
  return Vocabulary(std::move(code_points));
}

int64_t Vocabulary::size() const {
  return is_bytes() ? 256 : static_cast<int64_t>(code_points_.size());
}

Result<TokenSource> Vocabulary::encode(std::string_view text) const {
  if (is_bytes()) {
    auto owner = std::make_shared<std::string>(text);
    const auto bytes = std::as_bytes(std::span<const char>(*owner));
    return TokenSource(std::move(owner), bytes, TokenWidth::kUInt8);
  }
  if (size() <= 256) return encode_characters<uint8_t>(text, code_points_, TokenWidth::kUInt8);
  if (size() <= 65536) return encode_characters<uint16_t>(text, code_points_, TokenWidth::kUInt16);
  return encode_characters<uint32_t>(text, code_points_, TokenWidth::kUInt32);
}

std::string Vocabulary::decode(std::span<const int64_t> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const int64_t token : tokens) {
    if (token < 0 || token >= size()) {
      internal::append_code_point(text, kReplacement);
    } else if (is_bytes()) {
      text += static_cast<char>(token);
    } else {
      internal::append_code_point(text, code_points_[token]);
    }
  }
  return text;
}

std::string Vocabulary::to_json() const {
  if (is_bytes()) return R"({"kind":"byte"})";
  std::string characters;
  for (const char32_t value : code_points_) internal::append_code_point(characters, value);
  return base::dump(base::Json{{"kind", "char"}, {"characters", characters}});
}

Result<Vocabulary> Vocabulary::from_json(std::string_view json) {
  HANJI_ASSIGN_OR_RETURN(const base::Json value, base::parse_json(json));
  const Status bad = base::corrupt(
      "a vocabulary is {\"kind\":\"byte\"} or {\"kind\":\"char\",\"characters\":\"...\"} with its "
      "characters in ascending order");
  if (!value.is_object() || !value.contains("kind")) return bad;
  if (value["kind"] == "byte") return bytes();
  if (value["kind"] != "char" || !value.contains("characters")) return bad;
  const auto* text = value["characters"].get_ptr<const std::string*>();
  if (text == nullptr) return bad;
  HANJI_ASSIGN_OR_RETURN(Vocabulary vocabulary, characters(*text));
  // The ids are the order of the characters: any other spelling of the set would be ambiguous.
  std::string ordered;
  for (const char32_t point : vocabulary.code_points_) {
    internal::append_code_point(ordered, point);
  }
  if (ordered != *text) return bad;
  return vocabulary;
}

}  // namespace hanji::data
