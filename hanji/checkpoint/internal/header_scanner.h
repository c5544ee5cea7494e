#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "hanji/base/status.h"

namespace hanji::checkpoint::internal {

/// Takes strict JSON apart piece by piece: the caller says what must come next, so foreign text
/// cannot choose how deep or how wide the reader goes.
class HeaderScanner {
 public:
  explicit HeaderScanner(std::string_view text) : text_(text) {}

  /// Takes `expected` after white space, or refuses.
  Status take(char expected);
  /// Takes `wanted` after white space if it comes next.
  bool try_take(char wanted);
  /// Takes a string, unescaped. Errors: kCorrupt for control characters, half a surrogate pair,
  /// or bytes that are not UTF-8.
  Result<std::string> take_string();
  /// Takes an integer in [0, 2^63).
  Result<int64_t> take_integer();
  /// Refuses anything but white space up to the end.
  Status take_end();

  /// kCorrupt: "header byte N: what".
  Status error(std::string_view what) const;

 private:
  void skip_space();
  Status take_escape(std::string& out);
  Result<uint32_t> take_hex();
  Status take_character(std::string& out);

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace hanji::checkpoint::internal
