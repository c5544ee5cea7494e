#pragma once

#include <atomic>
#include <mutex>

#include "hanji/base/file.h"
#include "hanji/data/internal/beton_layout.h"
#include "hanji/data/internal/little_endian.h"

namespace hanji::data::internal {

/// What an open file knows: where everything is, and which samples were verified.
struct BetonState {
  std::optional<base::MappedFile> file;
  std::string path;  ///< Empty for bytes in memory.
  std::span<const std::byte> bytes;
  BetonSections sections;
  std::vector<BetonField> fields;
  std::vector<uint64_t> array_bytes;  ///< Of each field; 0 unless it is an array.
  std::vector<size_t> image_of;       ///< Of each field: its number among images.
  RecordLayout layout;

  bool has_extension = false;
  uint64_t provenance_begin = 0;
  uint64_t provenance_bytes = 0;
  uint64_t rows_begin = 0;
  /// With an extension: a bit of each sample whose bytes are those that were written.
  std::unique_ptr<std::atomic<uint64_t>[]> verified;

  std::once_flag sizes_once;
  std::vector<uint32_t> sizes;  ///< Without one: bytes of each sample's images, from the table.

  std::span<const std::byte> record(uint64_t sample) const {
    return bytes.subspan(sections.metadata_begin + sample * sections.record_bytes,
                         sections.record_bytes);
  }
  std::span<const std::byte> row(uint64_t sample) const {
    return bytes.subspan(rows_begin + sample * layout.row_bytes(), layout.row_bytes());
  }
  BetonAllocation allocation(uint64_t row) const;

  Status check_record(uint64_t sample) const;
  bool is_verified(uint64_t sample) const {
    return has_extension &&
           (verified[sample / 64].load(std::memory_order_relaxed) >> sample % 64 & 1) != 0;
  }
  bool is_raw_image(uint64_t sample, size_t field) const;
  /// The value, its bounds checked, its page and its record not.
  Result<BetonValue> locate(uint64_t sample, size_t field);
  Result<std::span<const std::byte>> heap(uint64_t begin, uint64_t size) const;
  uint64_t image_bytes(uint64_t sample, size_t field);
  void index_images();

  uint64_t page_of(std::span<const std::byte> in_heap) const {
    return (static_cast<uint64_t>(in_heap.data() - bytes.data()) - sections.heap_begin) /
           sections.page_bytes;
  }
  /// check_sample_bytes() of a sample that it has not accepted before, and whose record is good.
  Status check_once(uint64_t sample);
  /// kCorrupt if the sample's bytes in the heap are not those that were written.
  Status check_sample_bytes(uint64_t sample);
};

}  // namespace hanji::data::internal
