#include "hanji/data/beton_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "hanji/base/checksum.h"
#include "hanji/data/internal/beton_state.h"

namespace hanji::data {
namespace internal {
namespace {

std::string where(const BetonState& state, uint64_t sample, size_t field) {
  const std::string place = fmt::format("sample {}, field '{}'", sample, state.fields[field].name);
  return state.path.empty() ? place : state.path + ": " + place;
}

}  // namespace

BetonAllocation BetonState::allocation(uint64_t row) const {
  const uint64_t at = sections.table_begin + row * kBetonAllocationBytes;
  return {load<uint64_t>(bytes, at), load<uint64_t>(bytes, at + 8), load<uint64_t>(bytes, at + 16)};
}

Status BetonState::check_record(uint64_t sample) const {
  if (!has_extension) return {};
  const auto kept = load<uint32_t>(row(sample), 0);
  const uint32_t found = record_checksum(record(sample), row(sample));
  if (found == kept) return {};
  return base::corrupt(fmt::format(
      "the checksum of its record, at byte {}, is {:08x}, not {:08x}; copy the file again",
      sections.metadata_begin + sample * sections.record_bytes, found, kept));
}

Result<std::span<const std::byte>> BetonState::heap(uint64_t begin, uint64_t size) const {
  if (size == 0) return std::span<const std::byte>();
  const bool inside = begin >= sections.heap_begin && begin < sections.heap_end &&
                      size <= sections.heap_end - begin;
  const uint64_t offset = inside ? (begin - sections.heap_begin) % sections.page_bytes : 0;
  if (inside && size <= sections.page_bytes - offset) return bytes.subspan(begin, size);
  return base::corrupt(fmt::format(
      "{} bytes at byte {} are not in one of the {} pages of {} bytes from byte {}; copy the file "
      "again",
      size, begin, sections.num_pages, sections.page_bytes, sections.heap_begin));
}

/// One pass over the table, whose rows say whose they are; a row that no record names is ignored.
void BetonState::index_images() {
  sizes.assign(sections.num_samples * layout.num_images, 0);
  for (uint64_t i = 0; i < sections.num_allocations; ++i) {
    const BetonAllocation one = allocation(i);
    if (one.sample >= sections.num_samples || one.size > sections.page_bytes) continue;
    for (size_t f = 0; f < fields.size(); ++f) {
      if (fields[f].type != BetonType::kRgbImage) continue;
      uint32_t& size = sizes[one.sample * layout.num_images + image_of[f]];
      const auto begin = load<uint64_t>(record(one.sample), layout.offsets[f] + 5);
      // Bytes of length 0 share the pointer of the image behind them.
      if (begin == one.begin) size = std::max(size, static_cast<uint32_t>(one.size));
    }
  }
}

uint64_t BetonState::image_bytes(uint64_t sample, size_t field) {
  if (has_extension) return load<uint32_t>(row(sample), 8 + 4 * image_of[field]);
  std::call_once(sizes_once, [this] { index_images(); });
  return sizes[sample * layout.num_images + image_of[field]];
}

bool BetonState::is_raw_image(uint64_t sample, size_t field) const {
  if (fields[field].type != BetonType::kRgbImage) return false;
  return load<uint8_t>(record(sample), layout.offsets[field]) ==
         static_cast<uint8_t>(BetonImageMode::kRaw);
}

Result<BetonValue> BetonState::locate(uint64_t sample, size_t field) {
  const auto at = record(sample).subspan(layout.offsets[field]);
  BetonValue value;
  switch (fields[field].type) {
    case BetonType::kInt: value.integer = load<int64_t>(at, 0); return value;
    case BetonType::kFloat: value.number = load<double>(at, 0); return value;
    case BetonType::kNdArray:
    case BetonType::kTorchTensor: {
      HANJI_ASSIGN_OR_RETURN(value.bytes, heap(load<uint64_t>(at, 0), array_bytes[field]));
      return value;
    }
    case BetonType::kBytes:
    case BetonType::kJson: {
      HANJI_ASSIGN_OR_RETURN(value.bytes, heap(load<uint64_t>(at, 0), load<uint64_t>(at, 8)));
      return value;
    }
    case BetonType::kRgbImage: break;
  }
  const auto mode = load<uint8_t>(at, 0);
  value.mode = BetonImageMode(mode);
  value.width = load<uint16_t>(at, 1);
  value.height = load<uint16_t>(at, 3);
  if (mode > 1 || value.width == 0 || value.height == 0) {
    return base::corrupt(
        fmt::format("an image of {} x {} pixels in mode {}; 0 (jpg) and 1 (raw) "
                    "exist",
                    value.width, value.height, mode));
  }
  const uint64_t raw = uint64_t{3} * value.width * value.height;
  const bool is_raw = value.mode == BetonImageMode::kRaw;
  const uint64_t size = is_raw ? raw : image_bytes(sample, field);
  if (size == 0) {
    return base::corrupt(
        fmt::format("the allocation table has no row for its JPEG at byte {}; write the file again",
                    load<uint64_t>(at, 5)));
  }
  HANJI_ASSIGN_OR_RETURN(value.bytes, heap(load<uint64_t>(at, 5), size));
  return value;
}

Status BetonState::check_once(uint64_t sample) {
  if (is_verified(sample)) return {};
  HANJI_RETURN_IF_ERROR(check_sample_bytes(sample));
  verified[sample / 64].fetch_or(uint64_t{1} << sample % 64, std::memory_order_relaxed);
  return {};
}

Status BetonState::check_sample_bytes(uint64_t sample) {
  uint64_t checksum = 0;
  std::optional<uint64_t> page;
  for (size_t f = 0; f < fields.size(); ++f) {
    if (!is_in_heap(fields[f].type)) continue;
    HANJI_ASSIGN_OR_RETURN(const BetonValue value, locate(sample, f));
    checksum = add_to_checksum(checksum, value.bytes);
    if (!value.bytes.empty()) page = page_of(value.bytes);
  }
  const auto kept = load<uint32_t>(row(sample), 4);
  if (static_cast<uint32_t>(checksum) == kept) return {};
  return base::corrupt(
      fmt::format("the checksum of its bytes in page {} is {:08x}, not {:08x}; copy the file again",
                  page.value_or(0), static_cast<uint32_t>(checksum), kept));
}

}  // namespace internal

using internal::BetonState;

const std::string& BetonFile::path() const { return state_->path; }
const std::vector<BetonField>& BetonFile::fields() const { return state_->fields; }
const BetonSections& BetonFile::sections() const { return state_->sections; }
bool BetonFile::has_checksums() const { return state_->has_extension; }
BetonAllocation BetonFile::allocation(uint64_t row) const { return state_->allocation(row); }

std::vector<uint32_t> BetonFile::sample_pages(size_t field) const {
  std::vector<uint32_t> pages;
  for (uint64_t sample = 0; sample < num_samples(); ++sample) {
    const auto value = locate(sample, field);
    const bool is_there = value.ok() && !value->bytes.empty();
    const auto page = is_there ? page_of(offset_of(*value)) : std::nullopt;
    pages.push_back(static_cast<uint32_t>(page.value_or(0)));
  }
  return pages;
}

std::optional<uint64_t> BetonFile::page_of(uint64_t offset) const {
  const BetonSections& s = sections();
  if (offset < s.heap_begin || offset >= s.heap_end) return std::nullopt;
  return (offset - s.heap_begin) / s.page_bytes;
}

uint64_t BetonFile::pages_checksum() const {
  if (!state_->has_extension) return 0;
  return base::xxh3(state_->bytes.subspan(sections().heap_end, 8 * sections().num_pages));
}

std::string_view BetonFile::provenance() const {
  const auto* text = reinterpret_cast<const char*>(state_->bytes.data());
  return {text + state_->provenance_begin, state_->provenance_bytes};
}

Result<size_t> BetonFile::find_field(std::string_view name) const {
  const auto is_it = [name](const BetonField& field) { return field.name == name; };
  const auto& all = fields();
  const auto found = std::find_if(all.begin(), all.end(), is_it);
  if (found == all.end()) {
    std::vector<std::string> names;
    for (const BetonField& field : all) names.push_back(field.name);
    return base::not_found(
        fmt::format("no field '{}'; the fields are {}", name, fmt::join(names, ", ")));
  }
  if (std::count_if(all.begin(), all.end(), is_it) == 1) return found - all.begin();
  return base::invalid_argument(
      fmt::format("two fields are named '{}'; name them by their numbers", name));
}

Result<BetonValue> BetonFile::locate(uint64_t sample, size_t field) const {
  BetonState& state = *state_;
  if (sample >= num_samples() || field >= fields().size()) {
    return base::invalid_argument(fmt::format("sample {} and field {} of {} samples and {} fields",
                                              sample, field, num_samples(), fields().size()));
  }
  const Status status = state.is_verified(sample) ? Status() : state.check_record(sample);
  if (!status.ok()) return status.at(internal::where(state, sample, field));
  auto value = state.locate(sample, field);
  if (!value.ok()) return value.status().at(internal::where(state, sample, field));
  return value;
}

void BetonFile::expect(uint64_t sample, size_t field) const {
  if (sample >= num_samples() || field >= fields().size()) return;
  const BetonType type = fields()[field].type;
  const bool is_array = type == BetonType::kNdArray || type == BetonType::kTorchTensor;
  if (!is_array && !state_->is_raw_image(sample, field)) return;
  const auto value = state_->locate(sample, field);
  if (!value.ok() || value->bytes.size() > kMaxExpectedBytes) return;
  constexpr size_t kCacheLine = 64;
  for (size_t at = 0; at < value->bytes.size(); at += kCacheLine) {
    __builtin_prefetch(value->bytes.data() + at);
  }
}

bool BetonFile::is_verified(uint64_t sample) const {
  return sample < num_samples() && state_->is_verified(sample);
}

bool BetonFile::is_page(uint64_t page, std::span<const std::byte> content) const {
  if (!has_checksums()) return true;
  const uint64_t kept = internal::load<uint64_t>(state_->bytes, sections().heap_end + 8 * page);
  return base::xxh3(content) == kept;
}

uint64_t BetonFile::offset_of(const BetonValue& value) const {
  return static_cast<uint64_t>(value.bytes.data() - state_->bytes.data());
}

Result<BetonValue> BetonFile::read(uint64_t sample, size_t field) const {
  BetonState& state = *state_;
  auto value = locate(sample, field);
  if (!value.ok()) return value;
  const bool has_checksum = state.has_extension && !value->bytes.empty();
  const Status status = has_checksum ? state.check_once(sample) : Status();
  if (!status.ok()) return status.at(internal::where(state, sample, field));
  if (fields()[field].type != BetonType::kJson) return value;
  if (value->bytes.empty() || value->bytes.back() != std::byte{0}) {
    return base::corrupt("its JSON does not end with a zero byte; write the file again")
        .at(internal::where(state, sample, field));
  }
  value->bytes = value->bytes.first(value->bytes.size() - 1);
  return value;
}

}  // namespace hanji::data
