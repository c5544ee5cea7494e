#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace hanji::data::internal {

/// A folder that goes with the test that made it.
class TestFolder {
 public:
  TestFolder() {
    std::string name = testing::TempDir() + "hanji_data_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no folder at " << name;
    path_ = name;
  }
  TestFolder(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  const std::filesystem::path& path() const { return path_; }

  /// Writes a file below the folder and returns its path.
  std::filesystem::path write(std::string_view name, std::string_view content) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace hanji::data::internal
