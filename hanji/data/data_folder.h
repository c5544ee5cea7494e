#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/file.h"
#include "hanji/base/status.h"

namespace hanji::data {

/// What lies in a folder of data; each list is in the order of the paths' bytes.
struct DataFolder {
  std::vector<std::filesystem::path> files;  ///< Regular files, links to files too.
  /// Folders directly in it, links to folders too. With Recurse::kYes only links, which are not followed.
  std::vector<std::filesystem::path> folders;
  std::vector<std::filesystem::path> others;  ///< Pipes, sockets, devices, links to nothing.
  std::vector<std::filesystem::path>
      left_out;  ///< Names for which is_metadata() is true, with all below them.
};

/// Lists a folder of data: the one rule of what is data for classes of images, texts and shards.
/// Errors  those of the file system, such as kNotFound.
Result<DataFolder> list_data(const std::filesystem::path& folder,
                             base::Recurse recurse = base::Recurse::kNo);

/// Whether a file or folder of this name is never data: hidden names (.ipynb_checkpoints, .DS_Store, ._1.jpg),
/// and those that macOS, Windows, Synology's and other file systems add (__MACOSX, Thumbs.db, lost+found).
bool is_metadata(std::string_view name);
/// The same for any name in a path of an archive.
bool has_metadata_name(std::string_view path);

/// Adds "left out 2 KIND, such as PATH" to `notes`; nothing without paths. `kind`: a singular noun, which
/// base::counted() counts, and `behind`, what follows it.
void note_left_out(std::vector<std::string>& notes, const std::vector<std::filesystem::path>& paths,
                   std::string_view kind, std::string_view behind = "");
/// The same for DataFolder::left_out.
void note_metadata(std::vector<std::string>& notes,
                   const std::vector<std::filesystem::path>& paths);

}  // namespace hanji::data
