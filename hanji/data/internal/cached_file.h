#pragma once

#include <cstdint>
#include <memory>

#include "hanji/data/beton_file.h"
#include "hanji/data/page_cache.h"

namespace hanji::data::internal {

/// Which copy of a page is read. The cache has the pages of the samples of a run's schedule.
enum class From : uint8_t { kFile, kCache };

/// A .beton file, some values of which are read from a PageCache once it is attached.
/// Thread  any number of threads may read.
class CachedFile {
 public:
  /// Of at most `cached_pages` pages; 0: no cache.
  /// Errors  those of PageCache::open().
  static Result<CachedFile> create(BetonFile file, int64_t cached_pages);

  const BetonFile& file() const { return *file_; }
  /// Null unless cached_pages.
  const std::shared_ptr<PageCache>& cache() const { return cache_; }

  /// As BetonFile::expect(); nothing of what comes from the cache.
  void expect(uint64_t sample, size_t field) const;
  /// As BetonFile::read(). Result: valid as long as the cache keeps the page, or as this.
  /// Errors  those of both, with the sample.
  Result<BetonValue> read(uint64_t sample, size_t field, From from) const;

 private:
  std::shared_ptr<const BetonFile> file_;
  std::shared_ptr<PageCache> cache_;
};

}  // namespace hanji::data::internal
