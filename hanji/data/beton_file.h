#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::data {

namespace internal {
struct BetonState;
}

/// The kinds of fields of a .beton file, with their numbers in the file.
enum class BetonType : uint8_t {
  kFloat = 0,
  kInt = 1,
  kRgbImage = 2,
  kBytes = 3,
  kNdArray = 4,
  kJson = 5,
  kTorchTensor = 6,
};

/// "float", "int", "rgb_image", "bytes", "ndarray", "json", "torch_tensor".
std::string_view name_of(BetonType type);

enum class BetonImageMode : uint8_t { kJpeg = 0, kRaw = 1 };

struct BetonField {
  std::string name;  ///< 1 to 16 ASCII characters.
  BetonType type = BetonType::kInt;
  std::vector<uint64_t> shape = {};  ///< Of arrays and tensors; empty: one element.
  std::string dtype = {};            ///< Of arrays and tensors, as numpy writes it: "<f4", "|u1".
};

/// One sample's value of one field.
struct BetonValue {
  int64_t integer = 0;  ///< kInt
  double number = 0;    ///< kFloat
  BetonImageMode mode = BetonImageMode::kRaw;
  uint16_t width = 0;  ///< kRgbImage, pixels
  uint16_t height = 0;
  /// An image's RGB rows or its JPEG stream, bytes, an array's elements in C order, or JSON text
  /// without the zero byte behind it. In a file any alignment.
  std::span<const std::byte> bytes = {};
};

/// Where the parts of a file are, in bytes from its start.
struct BetonSections {
  uint64_t num_samples = 0;
  uint64_t page_bytes = 0;
  uint64_t num_pages = 0;
  uint64_t record_bytes = 0;    ///< Of one sample in the metadata table.
  uint64_t metadata_begin = 0;  ///< Behind the header and the field descriptors.
  uint64_t heap_begin = 0;
  uint64_t heap_end = 0;     ///< What FFCV ignores lies from here to table_begin.
  uint64_t table_begin = 0;  ///< Rows of 24 bytes up to the end of the file.
  uint64_t num_allocations = 0;
};

/// A row of the allocation table.
struct BetonAllocation {
  uint64_t sample = 0;
  uint64_t begin = 0;
  uint64_t size = 0;
};

/// What verify() found wrong; page and sample if the damage belongs to one.
struct BetonMistake {
  std::optional<uint64_t> page = {};
  std::optional<uint64_t> sample = {};
  std::string message;
};

struct BetonVerifyOptions {
  uint64_t first_page = 0;  ///< Those before it are taken for good.
  /// Called after each page with the number of those that are done; false ends early.
  std::function<bool(uint64_t done, uint64_t total)> proceed = {};
};

/// A .beton file, version 2, of FFCV or of BetonWriter.
///
/// BetonWriter adds checksums where FFCV ignores bytes: one of the header, one per page, two per
/// sample. A sample's bytes are verified when it is first read, which brings them to where they are
/// used; pages by verify() and by a PageCache.
/// Cost    open() and parse() do no work per sample, and keep a bit of each: they check header, descriptors, the bounds of
///         each section and the checksums of those and of the index of pages. read() checks the
///         sample's record, bounds and bytes. Of a file without checksums the first read of a JPEG
///         passes over the allocation table, which alone has its size.
/// Thread  any number of threads may read.
/// Source  libffcv/ffcv: types.py, writer.py, reader.py, fields/.
class BetonFile {
 public:
  /// Maps the file, which must not be cut while it is open.
  /// Errors  kNotFound; kCorrupt with the byte and both values, also for a file whose writer did
  ///         not finish; kUnsupported for a custom field, another version or array type.
  static Result<BetonFile> open(const std::filesystem::path& path);
  /// As open(), of bytes that live as long as this.
  static Result<BetonFile> parse(std::span<const std::byte> bytes);
  BetonFile(BetonFile&&) noexcept;
  BetonFile& operator=(BetonFile&&) noexcept;
  ~BetonFile();

  /// Empty for bytes in memory.
  const std::string& path() const;
  const std::vector<BetonField>& fields() const;
  const BetonSections& sections() const;
  uint64_t num_samples() const { return sections().num_samples; }
  /// Errors  kNotFound, listing the names; kInvalidArgument if two fields have it.
  Result<size_t> find_field(std::string_view name) const;

  /// Result  valid as long as this.
  /// Errors  kInvalidArgument for a sample or field that is not there; kCorrupt, naming sample,
  ///         field and page.
  Result<BetonValue> read(uint64_t sample, size_t field) const;

  /// Says that a value is read next: brings its bytes nearer, if they are rows of an image or an array of at
  /// most kMaxExpectedBytes. Cost: no wait, no check.
  void expect(uint64_t sample, size_t field) const;
  static constexpr size_t kMaxExpectedBytes = 8192;

  /// Whether read() has found the record and the bytes of a sample to be those that were written.
  bool is_verified(uint64_t sample) const;
  /// As read(), without reading the heap: `bytes` are where the value is mapped, and are not
  /// verified. For readers that have the pages in memory of their own.
  Result<BetonValue> locate(uint64_t sample, size_t field) const;
  /// Whether `content` is that of the page; true of a file without checksums.
  bool is_page(uint64_t page, std::span<const std::byte> content) const;
  /// The byte of the heap at which a value's bytes are mapped.
  uint64_t offset_of(const BetonValue& value) const;

  bool has_checksums() const;
  /// Of the checksums of all pages: one number for all bytes of the heap. 0 without checksums.
  uint64_t pages_checksum() const;
  /// JSON that the writer was given; empty without checksums.
  std::string_view provenance() const;
  /// Row `row` < num_allocations, as it is in the file.
  BetonAllocation allocation(uint64_t row) const;
  /// The page of each sample's value of a field, by the samples' records; 0 for one that has no bytes in
  /// the heap, or cannot be read.
  /// Cost  once over the records, which are checked.
  std::vector<uint32_t> sample_pages(size_t field) const;
  /// The page of a byte of the heap; nothing for other bytes.
  std::optional<uint64_t> page_of(uint64_t offset) const;

  /// Reads the whole file: checksums, bounds, and the allocation table against the records.
  /// Result  the number of mistakes, each of which `report` was called with.
  uint64_t verify(const std::function<void(const BetonMistake&)>& report,
                  const BetonVerifyOptions& options = {}) const;

 private:
  explicit BetonFile(std::unique_ptr<internal::BetonState> state);
  std::unique_ptr<internal::BetonState> state_;
};

}  // namespace hanji::data
