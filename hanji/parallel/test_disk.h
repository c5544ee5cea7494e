#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace hanji::parallel::test_disk {

/// Private memory of this process in RAM, without pages of files.
inline int64_t private_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "RssAnon:") {
  }
  int64_t kilobytes = 0;
  status >> kilobytes;
  return kilobytes * 1024;
}

/// Cuts this process's nameless files of a folder behind everybody's back.
inline void cut_files_of(const std::filesystem::path& folder, off_t bytes) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.rfind(folder.string(), 0) != 0) continue;
    const int fd = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::ftruncate(fd, bytes), 0);
    ::close(fd);
  }
}

}  // namespace hanji::parallel::test_disk
