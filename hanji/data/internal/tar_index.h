#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::data::internal {

/// A regular file of an archive.
struct TarMember {
  std::string name;  ///< Without "./" at its begin.
  uint64_t begin = 0;
  uint64_t size = 0;
};

/// Finds the files of an uncompressed tar archive (ustar, GNU, pax); reads no file's bytes.
///
/// Result  in the order of the archive; folders are left out.
/// Errors  kCorrupt with the byte, for headers whose checksum differs, sizes that leave the archive,
///         an archive without its end (cut), and names that are empty, absolute or contain "..";
///         kUnsupported for links, devices, sparse files and compressed archives.
/// Source  POSIX.1-2017, pax; GNU tar manual, "Basic Tar Format".
Result<std::vector<TarMember>> index_tar(std::span<const std::byte> archive);

}  // namespace hanji::data::internal
