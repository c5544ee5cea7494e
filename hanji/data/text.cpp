#include "hanji/data/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/file.h"

namespace hanji::data {
namespace {

bool is_hidden(const std::filesystem::path& relative) {
  return std::any_of(relative.begin(), relative.end(), [](const std::filesystem::path& part) {
    return part.native().starts_with('.');
  });
}

Result<std::vector<std::filesystem::path>> text_files(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    return std::vector<std::filesystem::path>{path};
  }
  HANJI_ASSIGN_OR_RETURN(auto files, base::list_files(path, base::Recurse::kYes));
  std::erase_if(files, [&path](const std::filesystem::path& file) {
    return is_hidden(file.lexically_relative(path));
  });
  if (files.empty()) {
    return base::not_found(fmt::format(
        "{}: the folder holds no file; put text files there or name another path", path.native()));
  }
  return files;
}

Status append_file(const std::filesystem::path& path, Text& text) {
  HANJI_ASSIGN_OR_RETURN(const std::string content, base::read_file(path));
  if (const size_t nul = content.find('\0'); nul != std::string::npos) {
    return base::corrupt(
        fmt::format("{}: byte {} is NUL, so this is no text; for token files set data.tokens",
                    path.native(), nul));
  }
  text.files.push_back({path, static_cast<int64_t>(text.bytes.size())});
  text.bytes += content;
  return {};
}

}  // namespace

Result<Text> read_text(const std::filesystem::path& path) {
  HANJI_ASSIGN_OR_RETURN(const auto files, text_files(path));
  Text text;
  for (const auto& file : files) HANJI_RETURN_IF_ERROR(append_file(file, text));
  if (text.bytes.empty()) {
    return base::corrupt(fmt::format(
        "{}: the text is empty; name a text with at least a block of characters", path.native()));
  }
  return text;
}

std::string describe_position(const Text& text, int64_t position) {
  const auto after =
      std::upper_bound(text.files.begin(), text.files.end(), position,
                       [](int64_t wanted, const TextFile& file) { return wanted < file.begin; });
  if (after == text.files.begin()) return fmt::format("byte {}", position);
  const TextFile& file = *std::prev(after);
  return fmt::format("{}, byte {}", file.path.native(), position - file.begin);
}

}  // namespace hanji::data
