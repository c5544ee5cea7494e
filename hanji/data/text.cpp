#include "hanji/data/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "hanji/base/file.h"
#include "hanji/base/units.h"
#include "hanji/data/data_folder.h"
#include "hanji/data/internal/text_encoding.h"

namespace hanji::data {
namespace {

/// The files of a folder of texts.
Result<std::vector<std::filesystem::path>> list_texts(const std::filesystem::path& folder,
                                                      std::vector<std::string>& notes) {
  HANJI_ASSIGN_OR_RETURN(DataFolder found, list_data(folder, base::Recurse::kYes));
  note_metadata(notes, found.left_out);
  note_left_out(notes, found.others, "name", " (neither a file nor a folder)");
  note_left_out(notes, found.folders, "link", " (to a folder, not followed)");
  if (!found.files.empty()) return std::move(found.files);
  return base::not_found(
      fmt::format("{}: the folder holds no file{}{}; put text files there or name another path",
                  folder.native(), notes.empty() ? "" : ": ", fmt::join(notes, ", ")));
}

Status append_file(const std::filesystem::path& path, Text& text) {
  HANJI_ASSIGN_OR_RETURN(const std::string content, base::read_file(path));
  HANJI_RETURN_IF_ERROR(internal::check_encoding(path, content));
  const size_t mark = internal::utf8_mark_bytes(content);
  text.files.push_back({path, static_cast<int64_t>(text.bytes.size()), static_cast<int64_t>(mark)});
  text.bytes.append(content, mark);
  return {};
}

void note_marks(Text& text) {
  const auto is_marked = [](const TextFile& file) { return file.mark_bytes > 0; };
  const auto first = std::ranges::find_if(text.files, is_marked);
  if (first == text.files.end()) return;
  std::string note = internal::note_of_mark(first->path);
  const auto more = std::count_if(first + 1, text.files.end(), is_marked);
  if (more > 0) note += fmt::format(", and {} more", base::counted(more, "file"));
  text.notes.push_back(std::move(note));
}

}  // namespace

Result<Text> read_text(const std::filesystem::path& path) {
  Text text;
  std::vector<std::filesystem::path> files = {path};
  if (std::error_code error; std::filesystem::is_directory(path, error)) {
    HANJI_ASSIGN_OR_RETURN(files, list_texts(path, text.notes));
  }
  for (const auto& file : files) HANJI_RETURN_IF_ERROR(append_file(file, text));
  note_marks(text);
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
  return fmt::format("{}, byte {}", file.path.native(), position - file.begin + file.mark_bytes);
}

}  // namespace hanji::data
