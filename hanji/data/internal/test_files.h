#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

namespace hanji::data::internal {

/// Writes a file below `folder`, for tests, and returns its path.
inline std::filesystem::path write_file(const std::filesystem::path& folder, std::string_view name,
                                        std::string_view content) {
  const std::filesystem::path file = folder / name;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << content;
  return file;
}

}  // namespace hanji::data::internal
