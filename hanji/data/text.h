#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::data {

/// One file of a text: where its bytes begin in Text::bytes.
struct TextFile {
  std::filesystem::path path;
  int64_t begin = 0;
  int64_t mark_bytes = 0;  ///< Length of its byte order mark, which is left out.
};

/// The text of one file, or of all files of a folder one after the other.
struct Text {
  std::string bytes;
  std::vector<TextFile> files;
  std::vector<std::string> notes = {};  ///< What was left out, a sentence each.
};

/// Reads a text file, or every regular file below a folder in byte order of their paths.
///
/// Left out, with a note: what list_data() leaves out; of a folder also pipes, sockets, devices, links to
/// nothing and links to folders; the byte order mark that opens a text in UTF-8.
/// Cost    memory for the bytes once.
/// Errors  kNotFound: no such path, or a folder without a file. kCorrupt: an empty text; one in UTF-16 or
///         UTF-32; a NUL byte, which no text holds; file and offset are named.
Result<Text> read_text(const std::filesystem::path& path);

/// "file, byte 17" for a position of the joined bytes.
std::string describe_position(const Text& text, int64_t position);

/// The project's own sources and docs as they were when this library was built.
std::string_view embedded_text();

}  // namespace hanji::data
