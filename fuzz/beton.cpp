// Files of samples, and headers of JPEGs: every value that is read lies in the heap, and a verified file reads whole.
#include <cstring>
#include <vector>

#include "fuzz/input.h"
#include "hanji/base/checksum.h"
#include "hanji/data/beton_file.h"
#include "hanji/data/internal/beton_layout.h"
#include "hanji/data/internal/jpeg_header.h"
#include "hanji/data/internal/jpeg_rows.h"

namespace {

using hanji::data::internal::BetonTrailer;

/// Corrects the checksums of an extension, which a changed input never has by itself.
void reseal(std::span<std::byte> bytes) {
  uint16_t num_fields = 0;
  uint64_t table = 0;
  BetonTrailer trailer;
  if (bytes.size() < hanji::data::internal::kBetonHeaderBytes) return;
  std::memcpy(&num_fields, bytes.data() + 2, sizeof(num_fields));
  std::memcpy(&table, bytes.data() + 16, sizeof(table));
  const uint64_t head = hanji::data::internal::kBetonHeaderBytes +
                        hanji::data::internal::kBetonDescriptorBytes * num_fields;
  if (table > bytes.size() || head > table || table - head < sizeof(trailer)) return;
  std::memcpy(&trailer, bytes.data() + table - sizeof(trailer), sizeof(trailer));
  trailer.head_checksum = hanji::base::xxh3(bytes.first(head));
  if (trailer.begin <= table && trailer.num_pages <= table / 8) {
    const uint64_t index = 8 * trailer.num_pages + trailer.provenance_bytes;
    if (index <= table - trailer.begin) {
      trailer.index_checksum = hanji::base::xxh3(bytes.subspan(trailer.begin, index));
    }
  }
  const auto content = std::as_bytes(std::span(&trailer, 1));
  trailer.checksum = hanji::base::xxh3(content.first(sizeof(trailer) - sizeof(trailer.checksum)));
  if (std::memcmp(trailer.magic, hanji::data::internal::kBetonMagic, sizeof(trailer.magic)) == 0) {
    std::memcpy(bytes.data() + table - sizeof(trailer), &trailer, sizeof(trailer));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = hanji::fuzz::bytes_of(data, size);
  const auto jpeg = hanji::data::internal::parse_jpeg_size(input);
  hanji::fuzz::require(!jpeg.ok() || (jpeg->width > 0 && jpeg->height > 0), "an image has pixels");
  if (const auto rows = hanji::data::internal::find_jpeg_rows(input)) {
    std::vector<std::byte> part;
    for (int64_t first = 0; first < rows->count(); ++first) {
      hanji::data::internal::cut_jpeg_rows(input, *rows, first, rows->count(), part);
      hanji::fuzz::require(part.size() <= input.size(), "a part is of the stream");
    }
  }
  std::vector<std::byte> bytes(input.begin(), input.end());
  reseal(bytes);
  const auto file = hanji::data::BetonFile::parse(bytes);
  if (!file.ok()) return 0;
  uint64_t reported = 0;
  const uint64_t mistakes = file->verify([&](const auto&) { ++reported; });
  hanji::fuzz::require(reported == mistakes, "every mistake is reported");
  for (uint64_t sample = 0; sample < file->num_samples(); ++sample) {
    for (size_t field = 0; field < file->fields().size(); ++field) {
      const auto value = file->read(sample, field);
      hanji::fuzz::require(value.ok() || mistakes > 0, "a verified file reads whole");
      if (!value.ok()) continue;
      for (const std::byte byte : value->bytes) hanji::fuzz::touch(byte);
    }
  }
  return 0;
}
