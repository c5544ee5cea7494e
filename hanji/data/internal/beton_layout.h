#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "hanji/data/beton_file.h"

// Byte layout of a .beton file, little-endian, every pointer an offset in the file:
//   0   u16 version = 2   2  u16 fields F   4  u32 page bytes   8  u64 samples n
//   16  u64 begin of the allocation table; 0 while the writer works
//   24  F descriptors: u8 type, name[16], arguments[1024]; of arrays: u64 shape[32], u64 length,
//       that many characters of JSON, [["", "<f4"]]
//   then n records, as numpy aligns their fields; zeros up to a multiple of the page
//   pages; the extension below; the allocation table {u64 sample, u64 begin, u64 size} to the end
// The extension, which FFCV does not see:
//   u64 xxh3 of each page; provenance; n rows {u32 checksum of record and row, u32 checksum of the
//   sample's bytes in the heap, u32 size of each of its images}; 0 or 8 zeros; Trailer
namespace hanji::data::internal {

inline constexpr uint64_t kBetonVersion = 2;
inline constexpr uint64_t kBetonHeaderBytes = 24;
inline constexpr uint64_t kBetonDescriptorBytes = 1041;
inline constexpr uint64_t kBetonAllocationBytes = 24;
inline constexpr uint64_t kBetonNameBytes = 16;
inline constexpr uint64_t kMinPageBytes = 4096;
inline constexpr uint64_t kMaxPageBytes = uint64_t{1} << 31;

struct BetonTrailer {
  char magic[8];
  uint32_t version;
  uint32_t provenance_bytes;
  uint64_t begin;  ///< Of the extension.
  uint64_t num_pages;
  uint64_t head_checksum;   ///< Of header and descriptors.
  uint64_t index_checksum;  ///< Of the checksums of pages and the provenance.
  uint64_t checksum;        ///< Of the bytes of this before it.
};
static_assert(sizeof(BetonTrailer) == 56);

inline constexpr char kBetonMagic[9] = "hanjibtn";
inline constexpr uint32_t kExtensionVersion = 1;

/// Bytes of an extension. Never a multiple of the page, so that without its trailer the bytes
/// before the table are not taken for pages.
uint64_t extension_bytes(uint64_t content_bytes, uint64_t page_bytes);

/// Whether values are in the heap, and whether they are images.
bool is_in_heap(BetonType type);
bool is_array(BetonType type);

/// How numpy lays out a record with align=True.
struct RecordLayout {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
  uint64_t num_images = 0;
  bool has_heap = false;

  uint64_t row_bytes() const { return 8 + 4 * num_images; }
};
RecordLayout record_layout(const std::vector<BetonField>& fields);

/// Errors  kUnsupported for a custom field or array type; kCorrupt.
Result<BetonField> parse_descriptor(std::span<const std::byte> bytes);
/// Writes kBetonDescriptorBytes. Errors: kInvalidArgument, for what parse_descriptor() does not accept.
Status write_descriptor(const BetonField& field, std::span<std::byte> out);
/// Bytes of one value of an array field, at least 1. Errors: kUnsupported, kInvalidArgument.
Result<uint64_t> array_bytes(const BetonField& field);

/// Of a sample's record and its row of the extension, without the row's own first 4 bytes.
uint32_t record_checksum(std::span<const std::byte> record, std::span<const std::byte> row);
/// Adds the bytes of one more field of a sample to the checksum of those before; starts at 0.
uint64_t add_to_checksum(uint64_t checksum, std::span<const std::byte> bytes);

constexpr uint64_t round_up(uint64_t value, uint64_t power_of_two) {
  return (value + power_of_two - 1) & ~(power_of_two - 1);
}

template <class T>
void store(std::span<std::byte> bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

}  // namespace hanji::data::internal
