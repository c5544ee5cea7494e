#include <fmt/format.h>

#include <bit>

#include "hanji/base/checksum.h"
#include "hanji/data/internal/beton_state.h"

namespace hanji::data {
namespace internal {
namespace {

Status check_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kBetonHeaderBytes) {
    return base::corrupt(fmt::format("{} bytes hold no .beton header of {}; copy the file again",
                                     bytes.size(), kBetonHeaderBytes));
  }
  if (const auto version = load<uint16_t>(bytes, 0); version != kBetonVersion) {
    return base::unsupported(fmt::format(
        "version {} at byte 0 is not {}: no .beton file, or one of another FFCV; write it again",
        version, kBetonVersion));
  }
  const auto page = load<uint32_t>(bytes, 4);
  if (!std::has_single_bit(page) || page < kMinPageBytes) {
    return base::corrupt(fmt::format("pages of {} bytes at byte 4: a power of two from {} to {}",
                                     page, kMinPageBytes, kMaxPageBytes));
  }
  const auto table = load<uint64_t>(bytes, 16);
  if (table == 0) {
    return base::corrupt(
        "the pointer to the allocation table at byte 16 is 0: the writer did not finish; write the "
        "file again");
  }
  const uint64_t head_end = kBetonHeaderBytes + kBetonDescriptorBytes * load<uint16_t>(bytes, 2);
  const bool inside = table >= head_end && table <= bytes.size();
  const uint64_t beyond = inside ? (bytes.size() - table) % kBetonAllocationBytes : 0;
  if (beyond != 0 && head_end != kBetonHeaderBytes) {
    return base::corrupt(fmt::format(
        "behind byte {}, where the allocation table begins, are no whole rows of {} bytes, but {} "
        "more: the file was cut, or bytes were added to it; copy it again",
        table, kBetonAllocationBytes, beyond));
  }
  if (!inside || head_end == kBetonHeaderBytes) {
    return base::corrupt(fmt::format(
        "{} fields at byte 2 end at byte {}, the allocation table at byte {} has rows "
        "of {} bytes, and the file ends at byte {}: it was cut; copy it again",
        load<uint16_t>(bytes, 2), head_end, table, kBetonAllocationBytes, bytes.size()));
  }
  return {};
}

/// The trailer of our extension, if there is one.
Result<std::optional<BetonTrailer>> find_trailer(std::span<const std::byte> bytes,
                                                 const BetonSections& sections) {
  constexpr uint64_t kSize = sizeof(BetonTrailer);
  if (sections.table_begin - sections.metadata_begin < kSize) return std::optional<BetonTrailer>();
  const auto content = bytes.subspan(sections.table_begin - kSize, kSize);
  const auto trailer = load<BetonTrailer>(content, 0);
  if (std::memcmp(trailer.magic, kBetonMagic, sizeof(trailer.magic)) != 0)
    return std::optional<BetonTrailer>();
  if (base::xxh3(content.first(kSize - sizeof(trailer.checksum))) != trailer.checksum) {
    return base::corrupt(fmt::format(
        "the checksum of the extension's last bytes, before byte {}, differs; copy the file again",
        sections.table_begin));
  }
  if (trailer.version != kExtensionVersion) {
    return base::unsupported(fmt::format("version {} of the extension is not {}; use a newer hanji",
                                         trailer.version, kExtensionVersion));
  }
  if (base::xxh3(bytes.first(sections.metadata_begin)) != trailer.head_checksum) {
    return base::corrupt(
        fmt::format("the checksum of header and fields, bytes 0 to {}, differs; copy the file "
                    "again",
                    sections.metadata_begin));
  }
  return std::optional(trailer);
}

Status parse_fields(BetonState& state) {
  size_t num_images = 0;
  for (uint64_t at = kBetonHeaderBytes; at < state.sections.metadata_begin;
       at += kBetonDescriptorBytes) {
    auto field = parse_descriptor(state.bytes.subspan(at, kBetonDescriptorBytes));
    if (!field.ok()) return field.status().at(fmt::format("descriptor at byte {}", at));
    state.array_bytes.push_back(is_array(field->type) ? *array_bytes(*field) : 0);
    state.image_of.push_back(num_images);
    num_images += field->type == BetonType::kRgbImage;
    state.fields.push_back(*std::move(field));
  }
  state.layout = record_layout(state.fields);
  return {};
}

/// Places the metadata table and the heap, whose end `trailer` knows.
Status place_sections(BetonState& state, const std::optional<BetonTrailer>& trailer) {
  BetonSections& s = state.sections;
  s.record_bytes = state.layout.bytes;
  if (s.num_samples > (s.table_begin - s.metadata_begin) / s.record_bytes) {
    return base::corrupt(
        fmt::format("{} samples at byte 8 need records of {} bytes from byte {}, but the "
                    "allocation table begins at byte {}; copy the file again",
                    s.num_samples, s.record_bytes, s.metadata_begin, s.table_begin));
  }
  const uint64_t metadata_end = s.metadata_begin + s.num_samples * s.record_bytes;
  s.heap_end = trailer ? trailer->begin : s.table_begin;
  // FFCV pads only before a first page.
  const bool no_page = s.heap_end == metadata_end;
  s.heap_begin = no_page ? metadata_end : round_up(metadata_end, s.page_bytes);
  const bool inside = s.heap_begin <= s.heap_end && s.heap_end <= s.table_begin;
  if (!inside || (s.heap_end - s.heap_begin) % s.page_bytes != 0 ||
      (!no_page && !state.layout.has_heap)) {
    return base::corrupt(
        fmt::format("between the metadata, which ends at byte {}, and byte {} are no whole pages "
                    "of {} bytes; copy the file again",
                    metadata_end, s.heap_end, s.page_bytes));
  }
  s.num_pages = (s.heap_end - s.heap_begin) / s.page_bytes;
  return {};
}

Status read_extension(BetonState& state, const BetonTrailer& trailer) {
  const BetonSections& s = state.sections;
  const uint64_t held = s.table_begin - s.heap_end;
  const uint64_t index = 8 * s.num_pages + trailer.provenance_bytes;
  const uint64_t content = index + s.num_samples * state.layout.row_bytes();
  if (trailer.num_pages != s.num_pages || extension_bytes(content, s.page_bytes) != held) {
    return base::corrupt(
        fmt::format("the extension at byte {} has {} bytes for {} pages, but {} pages and {} "
                    "samples need {}; copy the file again",
                    s.heap_end, held, trailer.num_pages, s.num_pages, s.num_samples,
                    extension_bytes(content, s.page_bytes)));
  }
  if (base::xxh3(state.bytes.subspan(s.heap_end, index)) != trailer.index_checksum) {
    return base::corrupt(fmt::format(
        "the checksum of the index of pages, bytes {} to {}, differs; copy the file again",
        s.heap_end, s.heap_end + index));
  }
  state.has_extension = true;
  state.provenance_begin = s.heap_end + 8 * s.num_pages;
  state.provenance_bytes = trailer.provenance_bytes;
  state.rows_begin = s.heap_end + index;
  state.verified = std::make_unique<std::atomic<uint64_t>[]>(s.num_samples / 64 + 1);
  return {};
}

}  // namespace

/// Checks what open() checks and fills the rest of a state that has its bytes.
Status parse_into(BetonState& state) {
  HANJI_RETURN_IF_ERROR(check_header(state.bytes));
  BetonSections& s = state.sections;
  s.metadata_begin = kBetonHeaderBytes + kBetonDescriptorBytes * load<uint16_t>(state.bytes, 2);
  s.page_bytes = load<uint32_t>(state.bytes, 4);
  s.num_samples = load<uint64_t>(state.bytes, 8);
  s.table_begin = load<uint64_t>(state.bytes, 16);
  s.num_allocations = (state.bytes.size() - s.table_begin) / kBetonAllocationBytes;
  HANJI_ASSIGN_OR_RETURN(const auto trailer, find_trailer(state.bytes, s));
  HANJI_RETURN_IF_ERROR(parse_fields(state));
  HANJI_RETURN_IF_ERROR(place_sections(state, trailer));
  return trailer ? read_extension(state, *trailer) : Status();
}

}  // namespace internal

using internal::BetonState;

BetonFile::BetonFile(std::unique_ptr<BetonState> state) : state_(std::move(state)) {}
BetonFile::BetonFile(BetonFile&&) noexcept = default;
BetonFile& BetonFile::operator=(BetonFile&&) noexcept = default;
BetonFile::~BetonFile() = default;

Result<BetonFile> BetonFile::parse(std::span<const std::byte> bytes) {
  auto state = std::make_unique<BetonState>();
  state->bytes = bytes;
  HANJI_RETURN_IF_ERROR(internal::parse_into(*state));
  return BetonFile(std::move(state));
}

Result<BetonFile> BetonFile::open(const std::filesystem::path& path) {
  HANJI_ASSIGN_OR_RETURN(base::MappedFile file, base::MappedFile::open(path));
  auto parsed = parse(file.bytes());
  if (!parsed.ok()) return parsed.status().at(path.native());
  parsed->state_->file = std::move(file);
  parsed->state_->path = path.native();
  return parsed;
}

}  // namespace hanji::data
