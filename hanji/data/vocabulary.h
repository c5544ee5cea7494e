#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/data/token_source.h"

namespace hanji::data {

/// A bijection between token ids and the units of a text: bytes, or UTF-8 code points.
///
/// The ids of a character vocabulary follow the order of its code points, so the same set of
/// characters gives the same ids whatever text it was found in.
class Vocabulary {
 public:
  /// 256 ids, one per byte.
  static Vocabulary bytes();
  /// One id for each code point that occurs in `text`.
  /// Errors  kCorrupt for bytes that are not UTF-8 (with their offset), or an empty text.
  static Result<Vocabulary> characters(std::string_view text);

  int64_t size() const;
  bool is_bytes() const { return code_points_.empty(); }

  /// The ids of `text`, one, two or four bytes each: the least that holds size() - 1.
  /// Cost    one pass, and the memory of the ids; bytes are a copy of the text.
  /// Errors  kInvalidArgument for a character that is not in the vocabulary, kCorrupt for bytes
  ///         that are not UTF-8; both with the offset.
  Result<TokenSource> encode(std::string_view text) const;

  /// The text of `tokens`. Ids outside the vocabulary become U+FFFD.
  std::string decode(std::span<const int64_t> tokens) const;

  /// {"kind": "byte"} or {"kind": "char", "characters": "..."}; from_json() gives an equal one.
  std::string to_json() const;
  /// Errors  kCorrupt for anything that to_json() does not write.
  static Result<Vocabulary> from_json(std::string_view json);

  bool operator==(const Vocabulary&) const = default;

 private:
  explicit Vocabulary(std::vector<char32_t> code_points) : code_points_(std::move(code_points)) {}

  std::vector<char32_t> code_points_;  // Ascending; empty for bytes.
};

}  // namespace hanji::data
