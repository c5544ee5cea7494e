#include "hanji/data/internal/text_encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace hanji::data::internal {
namespace {

using namespace std::literals;

constexpr size_t kProbedBytes = 64 << 10;

/// Whether pairs of bytes, whose lower one is at `low`, are characters: a quarter of the upper bytes is zero, as of
/// letters, spaces and line ends, hardly a lower one is, and nothing beside them is a control character, as small
/// token ids would be.
bool are_characters(std::string_view head, size_t low) {
  constexpr size_t kLeast = 2;
  const size_t pairs = head.size() / 2;
  size_t zeros = 0, lower_zeros = 0;
  for (size_t i = 0; i < pairs; ++i) {
    const auto character = static_cast<unsigned char>(head[2 * i + low]);
    lower_zeros += character == 0 ? 1 : 0;
    if (head[2 * i + 1 - low] != '\0') continue;
    if (character < 0x20 && std::isspace(character) == 0) return false;
    ++zeros;
  }
  return zeros >= kLeast && zeros * 4 >= pairs && lower_zeros * 8 <= zeros;
}

std::string_view encoding_by_mark(std::string_view content) {
  if (content.starts_with("\xFF\xFE\0\0"sv) || content.starts_with("\0\0\xFE\xFF"sv)) {
    return "UTF-32";
  }
  if (content.starts_with("\xFF\xFE"sv) || content.starts_with("\xFE\xFF"sv)) return "UTF-16";
  return {};
}

std::string_view encoding_by_zeros(std::string_view head) {
  std::array<size_t, 4> zeros{};  // by the place in a group of four bytes
  for (size_t i = 0; i < head.size(); ++i) zeros[i % 4] += head[i] == '\0' ? 1 : 0;
  const size_t groups = head.size() / 4;
  const size_t most = groups - groups / 10;
  const bool is_wide = groups > 0 && zeros[1] >= most && zeros[2] >= most;
  if (is_wide && zeros[3] >= most && zeros[0] < most) return "UTF-32LE";
  if (is_wide && zeros[0] >= most && zeros[3] < most) return "UTF-32BE";
  if (are_characters(head, 0)) return "UTF-16LE";
  if (are_characters(head, 1)) return "UTF-16BE";
  return {};
}

}  // namespace

size_t utf8_mark_bytes(std::string_view content) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return content.starts_with(kMark) ? kMark.size() : 0;
}

std::string note_of_mark(const std::filesystem::path& file) {
  return "left out the byte order mark that opens " + file.native();
}

std::string_view wide_encoding(std::string_view content) {
  const std::string_view marked = encoding_by_mark(content);
  return marked.empty() ? encoding_by_zeros(content.substr(0, kProbedBytes)) : marked;
}

Status check_width(const std::filesystem::path& path, std::string_view content) {
  const std::string_view wide = wide_encoding(content);
  if (wide.empty()) return {};
  return base::corrupt(fmt::format(
      "{}: it is {}, and hanji reads UTF-8; convert it: iconv -f {} -t UTF-8 '{}' > NEW{}",
      path.native(), wide, wide, path.native(), path.extension().native()));
}

Status check_encoding(const std::filesystem::path& path, std::string_view content) {
  HANJI_RETURN_IF_ERROR(check_width(path, content));
  const size_t nul = content.find('\0');
  if (nul == std::string_view::npos) return {};
  return base::corrupt(
      fmt::format("{}: byte {} is NUL, so this is no text; for token files set data.tokens",
                  path.native(), nul));
}

}  // namespace hanji::data::internal
