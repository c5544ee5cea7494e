#include "hanji/data/internal/cached_file.h"

#include <fmt/format.h>

namespace hanji::data::internal {

Result<CachedFile> CachedFile::create(BetonFile file, int64_t cached_pages) {
  CachedFile made;
  made.file_ = std::make_shared<const BetonFile>(std::move(file));
  if (cached_pages == 0) return made;
  const BetonSections& s = made.file().sections();
  const auto is_good = [file = made.file_](uint64_t page, std::span<const std::byte> bytes) {
    return file->is_page(page, bytes);
  };
  HANJI_ASSIGN_OR_RETURN(made.cache_, PageCache::open({.path = made.file().path(),
                                                       .begin = s.heap_begin,
                                                       .page_bytes = s.page_bytes,
                                                       .num_pages = s.num_pages,
                                                       .most_pages = cached_pages,
                                                       .is_good = is_good}));
  return made;
}

void CachedFile::expect(uint64_t sample, size_t field) const {
  if (!cache_) file_->expect(sample, field);
}

Result<BetonValue> CachedFile::read(uint64_t sample, size_t field, From from) const {
  if (from == From::kFile || !cache_ || !cache_->is_attached()) return file_->read(sample, field);
  HANJI_ASSIGN_OR_RETURN(BetonValue value, file_->locate(sample, field));
  const BetonSections& s = file_->sections();
  const uint64_t place = file_->offset_of(value) - s.heap_begin;
  const auto page = cache_->page(place / s.page_bytes);
  if (!page.ok()) return page.status().at(fmt::format("sample {}", sample));
  // Of a damaged page, the file says which samples are.
  if (!page->is_good) return file_->read(sample, field);
  value.bytes = page->bytes.subspan(place % s.page_bytes, value.bytes.size());
  return value;
}

}  // namespace hanji::data::internal
