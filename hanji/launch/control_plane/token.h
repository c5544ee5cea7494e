#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>

#include "hanji/base/status.h"

namespace hanji::launch {

/// The secret that the hosts of one run share: 256 random bits.
using Token = std::array<std::byte, 32>;

/// A new one.
Result<Token> make_token();

/// 64 hexadecimal digits; white space around them is read over.
/// Errors  kInvalidArgument for anything else; the text is never shown.
std::string to_text(const Token& token);
Result<Token> parse_token(std::string_view text);

/// Errors  kInvalidArgument unless it is a regular file, no link, of this user, that nobody else
///         may read or write; kNotFound. With the way to make one.
Result<Token> read_token_file(const std::filesystem::path& path);

/// Reads one line from an inherited descriptor, byte by byte: what follows stays unread.
Result<Token> read_token(int descriptor);

}  // namespace hanji::launch
