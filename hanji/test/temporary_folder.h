#pragma once

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace hanji::test {

/// An empty folder that is gone, with all in it, at the end of the test.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(
      const std::filesystem::path& inside = std::filesystem::temp_directory_path()) {
    std::string name = (inside / "hanji_test_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;  // A test that made files unremovable has failed by itself.
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace hanji::test
