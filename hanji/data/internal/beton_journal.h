#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "hanji/base/file.h"

namespace hanji::data::internal {

/// What is known of a page that was written: its checksum, and of its samples what
/// BetonWriter::finish() writes.
struct JournalPage {
  uint64_t checksum = 0;
  uint64_t num_samples = 0;
  std::span<const std::byte> records = {};
  std::span<const std::byte> rows = {};   ///< Of the extension.
  std::span<const std::byte> table = {};  ///< Of the allocation table.
};

/// The file beside an unfinished .beton file from which a later writer continues.
///
/// Bytes   magic[8], u64 key; of each page u64 xxh3 of what follows, u64 checksum, samples, bytes of
///         records, rows and table; these three.
class BetonJournal {
 public:
  /// Passes the pages that an earlier writer noted to `keep` until it returns false; a damaged page
  /// and those behind it are forgotten, as are those that were not kept.
  /// Errors  kInvalidArgument for a journal with another key.
  static Result<BetonJournal> open(const std::filesystem::path& path, uint64_t key,
                                   const std::function<bool(const JournalPage&)>& keep);

  /// Hands the page to the kernel.
  Status append(const JournalPage& page);
  Status remove();

 private:
  BetonJournal(std::filesystem::path path, base::OutputFile file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::filesystem::path path_;
  base::OutputFile file_;
};

}  // namespace hanji::data::internal
