#include "hanji/data/beton_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "hanji/base/atomic_file.h"
#include "hanji/base/checksum.h"
#include "hanji/base/json.h"
#include "hanji/base/random.h"
#include "hanji/data/internal/beton_journal.h"
#include "hanji/data/internal/beton_layout.h"

namespace hanji::data {
namespace internal {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kMaxSamples = uint64_t{1} << 40;

Status check_beton_options(const BetonWriterOptions& options) {
  if (options.num_samples == 0 || options.num_samples > kMaxSamples) {
    return base::invalid_argument(
        fmt::format("a .beton file of {} samples; 1 to {} fit", options.num_samples, kMaxSamples));
  }
  const uint64_t page = options.page_bytes;
  if (!std::has_single_bit(page) || page < kMinPageBytes || page > kMaxPageBytes) {
    return base::invalid_argument(fmt::format("pages of {} bytes; a power of two from {} to {}",
                                              page, kMinPageBytes, kMaxPageBytes));
  }
  return base::parse_json(options.provenance).status().at("provenance");
}

Status check_fields(const std::vector<BetonField>& fields) {
  if (fields.empty() || fields.size() > UINT16_MAX) {
    return base::invalid_argument(fmt::format("{} fields; 1 to {} fit", fields.size(), UINT16_MAX));
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto same = [&](const BetonField& field) { return field.name == fields[i].name; };
    const auto before = fields.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(fields.begin(), before, same)) {
      return base::invalid_argument(
          fmt::format("two fields are named '{}'; rename one", fields[i].name));
    }
  }
  return {};
}

/// Whether an image or an array has the bytes that its size asks for.
Status check_beton_value(const BetonField& field, const BetonValue& value, uint64_t array_bytes) {
  const uint64_t held = value.bytes.size();
  const uint64_t raw = uint64_t{3} * value.width * value.height;
  const bool is_raw = value.mode == BetonImageMode::kRaw;
  const bool is_image = raw > 0 && (is_raw ? held == raw : held > 0);
  if (field.type == BetonType::kRgbImage && !is_image) {
    return base::invalid_argument(
        fmt::format("field '{}': {} bytes for a {} image of {} x {} pixels; raw ones have {} bytes",
                    field.name, held, is_raw ? "raw" : "jpg", value.width, value.height, raw));
  }
  if (!is_array(field.type) || held == array_bytes) return {};
  return base::invalid_argument(fmt::format(
      "field '{}': {} bytes for an array of {}; give them all", field.name, held, array_bytes));
}

}  // namespace

/// A file that is being written.
struct BetonWriting {
  base::AtomicFile file;
  BetonWriterOptions options;
  std::vector<BetonField> fields;
  std::vector<uint64_t> array_bytes;
  RecordLayout layout;
  Bytes head;  // header and descriptors
  uint64_t heap_begin = 0;

  uint64_t num_appended = 0;
  Bytes page;  // the open one; empty before the first value
  uint64_t page_used = 0;
  std::vector<uint64_t> page_checksums = {};  // of pages that are written
  Bytes records = {};
  Bytes rows = {};   // of the extension
  Bytes table = {};  // the allocation table

  std::optional<BetonJournal> journal = {};
  uint64_t num_noted = 0;    // samples in the journal
  uint64_t table_noted = 0;  // bytes of the table in it

  Status append(std::span<const BetonValue> values);
  Status finish();
  Status continue_interrupted();
  bool keep(const JournalPage& page, std::span<const std::byte> written);
  Status note_page();

  uint64_t page_begin() const { return heap_begin + page_checksums.size() * options.page_bytes; }
  uint64_t stored_bytes(size_t field, const BetonValue& value) const;
  Status make_room(std::span<const BetonValue> values);
  Status write_page();
  uint64_t put(std::span<const std::byte> bytes, uint64_t stored);
  void write_record(std::span<const BetonValue> values);
  Bytes extension() const;
};

uint64_t BetonWriting::stored_bytes(size_t field, const BetonValue& value) const {
  const BetonType type = fields[field].type;
  if (!is_in_heap(type)) return 0;
  return value.bytes.size() +
         (type == BetonType::kJson || (type == BetonType::kBytes && value.bytes.empty()));
}

Status BetonWriting::write_page() {
  std::fill(page.begin() + static_cast<std::ptrdiff_t>(page_used), page.end(), std::byte{0});
  HANJI_RETURN_IF_ERROR(file.write_at(page_begin(), page));
  page_checksums.push_back(base::xxh3(page));
  page_used = 0;
  return note_page();
}

Status BetonWriting::note_page() {
  if (!journal) return {};
  const JournalPage note{.checksum = page_checksums.back(),
                         .num_samples = num_appended - num_noted,
                         .records = std::span(records).subspan(num_noted * layout.bytes),
                         .rows = std::span(rows).subspan(num_noted * layout.row_bytes()),
                         .table = std::span(table).subspan(table_noted)};
  num_noted = num_appended;
  table_noted = table.size();
  return journal->append(note).at(file.path().native());
}

/// A page whose bytes did not reach the disk, and those behind it, are written again.
bool BetonWriting::keep(const JournalPage& note, std::span<const std::byte> written) {
  const uint64_t begin = page_begin();
  if (begin > written.size() || options.page_bytes > written.size() - begin) return false;
  const bool fits = note.num_samples <= options.num_samples - num_appended &&
                    note.records.size() == note.num_samples * layout.bytes &&
                    note.rows.size() == note.num_samples * layout.row_bytes();
  if (!fits || base::xxh3(written.subspan(begin, options.page_bytes)) != note.checksum) {
    return false;
  }
  page_checksums.push_back(note.checksum);
  records.insert(records.end(), note.records.begin(), note.records.end());
  rows.insert(rows.end(), note.rows.begin(), note.rows.end());
  table.insert(table.end(), note.table.begin(), note.table.end());
  num_appended += note.num_samples;
  return true;
}

Status BetonWriting::continue_interrupted() {
  uint64_t key = base::mix(*options.resume_key, base::xxh3(head));
  key = base::mix(key, base::xxh3(std::as_bytes(std::span(options.provenance))));
  HANJI_ASSIGN_OR_RETURN(const auto written, base::MappedFile::open(file.temporary()));
  const auto keep_page = [&](const JournalPage& note) { return keep(note, written.bytes()); };
  std::filesystem::path beside = file.temporary();
  beside += ".journal";
  HANJI_ASSIGN_OR_RETURN(auto opened, BetonJournal::open(beside, key, keep_page));
  journal.emplace(std::move(opened));
  num_noted = num_appended;
  table_noted = table.size();
  return file.truncate(page_checksums.empty() ? 0 : page_begin());
}

Status BetonWriting::make_room(std::span<const BetonValue> values) {
  uint64_t needed = 0;
  for (size_t f = 0; f < fields.size(); ++f) {
    HANJI_RETURN_IF_ERROR(check_beton_value(fields[f], values[f], array_bytes[f]));
    needed += stored_bytes(f, values[f]);
  }
  if (needed > options.page_bytes) {
    return base::invalid_argument(
        fmt::format("{} bytes do not fit a page of {}; set page_bytes to {}", needed,
                    options.page_bytes, std::bit_ceil(needed)));
  }
  if (needed > 0 && page.empty()) page.resize(options.page_bytes);
  return needed > page.size() - page_used ? write_page() : Status();
}

uint64_t BetonWriting::put(std::span<const std::byte> bytes, uint64_t stored) {
  const uint64_t begin = page_begin() + page_used;
  const std::span<std::byte> place = std::span(page).subspan(page_used, stored);
  std::copy(bytes.begin(), bytes.end(), place.begin());
  std::fill(place.begin() + static_cast<std::ptrdiff_t>(bytes.size()), place.end(), std::byte{0});
  page_used += stored;
  table.resize(table.size() + kBetonAllocationBytes);
  const std::span<std::byte> row = std::span(table).last(kBetonAllocationBytes);
  store(row, 0, num_appended);
  store(row, 8, begin);
  store(row, 16, stored);
  return begin;
}

void BetonWriting::write_record(std::span<const BetonValue> values) {
  const std::span<std::byte> record =
      std::span(records).subspan(num_appended * layout.bytes, layout.bytes);
  const std::span<std::byte> row =
      std::span(rows).subspan(num_appended * layout.row_bytes(), layout.row_bytes());
  uint64_t checksum = 0;
  uint64_t image_at = 8;
  for (size_t f = 0; f < fields.size(); ++f) {
    const std::span<std::byte> at = record.subspan(layout.offsets[f]);
    const BetonValue& value = values[f];
    const BetonType type = fields[f].type;
    if (type == BetonType::kInt) store(at, 0, value.integer);
    if (type == BetonType::kFloat) store(at, 0, value.number);
    if (!is_in_heap(type)) continue;
    const uint64_t stored = stored_bytes(f, value);
    const uint64_t begin = put(value.bytes, stored);
    checksum = add_to_checksum(checksum, std::span(page).subspan(begin - page_begin(), stored));
    store(at, type == BetonType::kRgbImage ? 5 : 0, begin);
    if (type == BetonType::kBytes || type == BetonType::kJson) store(at, 8, stored);
    if (type != BetonType::kRgbImage) continue;
    store(at, 0, value.mode);
    store(at, 1, value.width);
    store(at, 3, value.height);
    store(row, image_at, static_cast<uint32_t>(stored));
    image_at += 4;
  }
  store(row, 4, static_cast<uint32_t>(checksum));
  store(row, 0, record_checksum(record, row));
}

/// Everything of the extension, its trailer too.
Bytes BetonWriting::extension() const {
  const auto checksums = std::as_bytes(std::span(page_checksums));
  const auto provenance = std::as_bytes(std::span(options.provenance));
  const uint64_t index = checksums.size() + provenance.size();
  Bytes out(extension_bytes(index + rows.size(), options.page_bytes));
  std::copy(checksums.begin(), checksums.end(), out.begin());
  std::copy(provenance.begin(), provenance.end(), out.begin() + checksums.size());
  std::copy(rows.begin(), rows.end(), out.begin() + index);
  BetonTrailer trailer{.magic = {},
                       .version = kExtensionVersion,
                       .provenance_bytes = static_cast<uint32_t>(provenance.size()),
                       .begin = page_begin(),
                       .num_pages = page_checksums.size(),
                       .head_checksum = base::xxh3(head),
                       .index_checksum = base::xxh3(std::span(out).first(index)),
                       .checksum = 0};
  std::memcpy(trailer.magic, kBetonMagic, sizeof(trailer.magic));
  const auto content = std::as_bytes(std::span(&trailer, 1));
  trailer.checksum = base::xxh3(content.first(content.size() - sizeof(trailer.checksum)));
  std::copy(content.begin(), content.end(), out.end() - content.size());
  return out;
}

Status BetonWriting::append(std::span<const BetonValue> values) {
  const auto sample = [this] { return fmt::format("sample {}", num_appended); };
  if (values.size() != fields.size() || num_appended >= options.num_samples) {
    return base::invalid_argument(fmt::format("{}: {} values for {} fields, of {} samples",
                                              sample(), values.size(), fields.size(),
                                              options.num_samples));
  }
  if (const Status status = make_room(values); !status.ok()) return status.at(sample());
  records.resize((num_appended + 1) * layout.bytes);
  rows.resize((num_appended + 1) * layout.row_bytes());
  write_record(values);
  ++num_appended;
  return {};
}

Status BetonWriting::finish() {
  if (num_appended != options.num_samples) {
    return base::invalid_argument(fmt::format("{} samples of {} were added; add the others",
                                              num_appended, options.num_samples));
  }
  if (page_used > 0) HANJI_RETURN_IF_ERROR(write_page());
  const uint64_t heap_end = page_begin();
  const uint64_t content = 8 * page_checksums.size() + options.provenance.size() + rows.size();
  store(std::span(head), 16, heap_end + extension_bytes(content, options.page_bytes));
  const Bytes tail = extension();
  HANJI_RETURN_IF_ERROR(file.write_at(0, head));
  HANJI_RETURN_IF_ERROR(file.write_at(head.size(), records));
  HANJI_RETURN_IF_ERROR(file.write_at(heap_end, tail));
  HANJI_RETURN_IF_ERROR(file.write_at(heap_end + tail.size(), table));
  HANJI_RETURN_IF_ERROR(file.commit());
  return journal ? journal->remove() : Status();
}

/// Checks everything first.
Result<std::unique_ptr<BetonWriting>> begin_beton(const std::filesystem::path& path,
                                                  std::vector<BetonField> fields,
                                                  const BetonWriterOptions& options) {
  const auto named = [&](const Status& status) { return status.at(path.native()); };
  HANJI_RETURN_IF_ERROR(named(check_beton_options(options)));
  HANJI_RETURN_IF_ERROR(named(check_fields(fields)));
  Bytes head(kBetonHeaderBytes + fields.size() * kBetonDescriptorBytes);
  std::vector<uint64_t> sizes;
  for (size_t f = 0; f < fields.size(); ++f) {
    const auto at = std::span(head).subspan(kBetonHeaderBytes + f * kBetonDescriptorBytes,
                                            kBetonDescriptorBytes);
    HANJI_RETURN_IF_ERROR(named(write_descriptor(fields[f], at)));
    sizes.push_back(is_array(fields[f].type) ? *array_bytes(fields[f]) : 0);
  }
  store(std::span(head), 0, static_cast<uint16_t>(kBetonVersion));
  store(std::span(head), 2, static_cast<uint16_t>(fields.size()));
  store(std::span(head), 4, static_cast<uint32_t>(options.page_bytes));
  store(std::span(head), 8, options.num_samples);
  HANJI_ASSIGN_OR_RETURN(base::AtomicFile file, options.resume_key
                                                    ? base::AtomicFile::resume(path)
                                                    : base::AtomicFile::create(path));
  const RecordLayout layout = record_layout(fields);
  const uint64_t metadata_end = head.size() + options.num_samples * layout.bytes;
  auto writing = std::make_unique<BetonWriting>(BetonWriting{
      .file = std::move(file),
      .options = options,
      .fields = std::move(fields),
      .array_bytes = std::move(sizes),
      .layout = layout,
      .head = std::move(head),
      .heap_begin = layout.has_heap ? round_up(metadata_end, options.page_bytes) : metadata_end,
      .page = {}});
  if (options.resume_key) HANJI_RETURN_IF_ERROR(named(writing->continue_interrupted()));
  return writing;
}

}  // namespace internal

BetonWriter::BetonWriter(std::unique_ptr<internal::BetonWriting> state)
    : state_(std::move(state)) {}
BetonWriter::BetonWriter(BetonWriter&&) noexcept = default;
BetonWriter::~BetonWriter() = default;

Result<BetonWriter> BetonWriter::create(const std::filesystem::path& path,
                                        std::vector<BetonField> fields,
                                        const BetonWriterOptions& options) {
  HANJI_ASSIGN_OR_RETURN(auto state, internal::begin_beton(path, std::move(fields), options));
  return BetonWriter(std::move(state));
}

Status BetonWriter::append(std::span<const BetonValue> values) { return state_->append(values); }

Status BetonWriter::finish() { return state_->finish(); }

uint64_t BetonWriter::num_appended() const { return state_->num_appended; }

Status BetonWriter::discard() {
  state_->file.discard();
  return state_->journal ? state_->journal->remove() : Status();
}

}  // namespace hanji::data
