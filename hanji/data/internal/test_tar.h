#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace hanji::data::internal {

/// Corrects the checksum of a header of a tar archive.
inline void seal_tar_header(std::string& header) {
  header.replace(148, 8, 8, ' ');
  uint64_t sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  header.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
}

/// A member of an archive as POSIX's ustar has it, for tests.
inline std::string tar_member(const std::string& name, const std::string& content,
                              char kind = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 8, std::string("0000644\0", 8));
  header.replace(124, 11, fmt::format("{:011o}", content.size()));
  header[156] = kind;
  header.replace(257, 8, std::string("ustar\00000", 8));
  seal_tar_header(header);
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

inline std::string tar_end() { return std::string(1024, '\0'); }

}  // namespace hanji::data::internal
