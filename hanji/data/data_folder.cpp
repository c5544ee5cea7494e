#include "hanji/data/data_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "hanji/base/text.h"
#include "hanji/base/units.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;

/// Result  whether the iterator may go into it.
bool add_entry(const fs::directory_entry& entry, base::Recurse recurse, DataFolder& to) {
  std::error_code gone;
  if (is_metadata(entry.path().filename().native())) {
    to.left_out.push_back(entry.path());
    return false;
  }
  const bool is_link = entry.is_symlink(gone);
  if (entry.is_regular_file(gone)) {
    to.files.push_back(entry.path());
  } else if (entry.is_directory(gone)) {
    if (is_link || recurse == base::Recurse::kNo) to.folders.push_back(entry.path());
  } else if (is_link || entry.exists(gone)) {  // a file that vanishes meanwhile is none of them
    to.others.push_back(entry.path());
  }
  return true;
}

void sort_by_bytes(std::vector<fs::path>& paths) {
  std::ranges::sort(
      paths, {}, [](const fs::path& one) -> const auto& { return one.native(); });
}

template <class Iterator>
Result<DataFolder> list(const fs::path& folder, base::Recurse recurse) {
  DataFolder found;
  std::error_code error;
  Iterator it(folder, error);
  while (!error && it != Iterator()) {
    const bool may_enter = add_entry(*it, recurse, found);
    if constexpr (std::is_same_v<Iterator, fs::recursive_directory_iterator>) {
      if (!may_enter) it.disable_recursion_pending();
    }
    it.increment(error);
  }
  if (error) return base::from_errno("list " + folder.native(), error.value());
  for (auto* paths : {&found.files, &found.folders, &found.others, &found.left_out}) {
    sort_by_bytes(*paths);
  }
  return found;
}

}  // namespace

Result<DataFolder> list_data(const fs::path& folder, base::Recurse recurse) {
  if (recurse == base::Recurse::kYes)
    return list<fs::recursive_directory_iterator>(folder, recurse);
  return list<fs::directory_iterator>(folder, recurse);
}

bool is_metadata(std::string_view name) {
  static constexpr std::string_view kOfSystems[] = {
      "__macosx",    "icon\r",       "thumbs.db", "ehthumbs.db",
      "desktop.ini", "$recycle.bin", "@eadir",    "system volume information",
      "lost+found"};
  if (name.starts_with('.')) return name != "." && name != "..";
  std::string small(name);
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kOfSystems, small) != std::end(kOfSystems);
}

bool has_metadata_name(std::string_view path) {
  return std::ranges::any_of(base::split(path, '/'), is_metadata);
}

void note_left_out(std::vector<std::string>& notes, const std::vector<fs::path>& paths,
                   std::string_view kind, std::string_view behind) {
  if (paths.empty()) return;
  notes.push_back(fmt::format("left out {}{}, such as {}", base::counted(std::ssize(paths), kind),
                              behind, paths.front().native()));
}

void note_metadata(std::vector<std::string>& notes, const std::vector<fs::path>& paths) {
  note_left_out(notes, paths, "name", " (hidden, or added by a system)");
}

}  // namespace hanji::data
