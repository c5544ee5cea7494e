#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "hanji/base/status.h"

namespace hanji::data::internal {

/// Bytes of the byte order mark that opens a text in UTF-8: 3, or 0 without one.
size_t utf8_mark_bytes(std::string_view content);

/// "left out the byte order mark that opens FILE".
std::string note_of_mark(const std::filesystem::path& file);

/// Name, for iconv, of an encoding of two or four bytes per character: by its byte order mark, else by where
/// most of the zero bytes lie. Empty: none of them.
/// Cost    looks at the first 64 KiB.
std::string_view wide_encoding(std::string_view content);

/// Refuses UTF-16 and UTF-32.
/// Errors  kCorrupt, naming the file and the command that converts it.
Status check_width(const std::filesystem::path& path, std::string_view content);

/// Refuses what is no text in an encoding of bytes.
/// Errors  kCorrupt, naming the file: as check_width(); a NUL byte, with its offset.
Status check_encoding(const std::filesystem::path& path, std::string_view content);

}  // namespace hanji::data::internal
