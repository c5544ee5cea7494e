#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hanji/data/beton_file.h"

namespace hanji::data {

namespace internal {
struct BetonWriting;
}

struct BetonWriterOptions {
  uint64_t num_samples = 0;                ///< At least 1; append() is called so often.
  uint64_t page_bytes = uint64_t{8} << 20; /**< A power of two from 4 KiB to 2 GiB. FFCV's own
                                                writer asks for 2 MiB; its reader takes any. */
  std::string provenance = "{}";           ///< JSON, kept for BetonFile::provenance().
  /// Identifies the samples. If set, a file that is not finished stays beside `path`, and a writer
  /// with the same key, fields and options continues it behind its last whole page.
  std::optional<uint64_t> resume_key = {};
};

/// Writes a .beton file that FFCV reads and BetonFile verifies.
///
/// Result  the same bytes for the same calls. All values of a sample are in one page, without
///         space between them; samples are in order.
/// Cost    one page in memory, and for each sample its record, 24 bytes per value in the heap and
///         8 + 4 per image. Values are copied once.
class BetonWriter {
 public:
  /// Begins a file beside `path`; until finish() returns, what `path` names is as it was.
  /// Cost    to continue, the pages of an interrupted writer are read once.
  /// Errors  kInvalidArgument for names, shapes and options, and for an unfinished file of another
  ///         key or process; kUnsupported for an element type.
  static Result<BetonWriter> create(const std::filesystem::path& path,
                                    std::vector<BetonField> fields,
                                    const BetonWriterOptions& options);
  BetonWriter(BetonWriter&&) noexcept;
  /// Without finish() nothing is left, unless there is a resume_key.
  ~BetonWriter();

  /// Samples that need not be added again; at first those of an interrupted writer.
  uint64_t num_appended() const;

  /// Adds the next sample: one value per field. FFCV misreads bytes of length 0, so that one zero
  /// byte is written for them; the zero byte behind JSON is added here.
  /// Errors  kInvalidArgument, naming sample and field, for sizes that do not fit; the sample is
  ///         not added then. kOutOfMemory on a full disk.
  Status append(std::span<const BetonValue> values);

  /// Writes what is left and gives the file its name. Order: once, after the last sample.
  /// Errors  kInvalidArgument if samples are missing; kOutOfMemory on a full disk.
  Status finish();

  /// Removes what was written. Order: instead of finish().
  Status discard();

 private:
  explicit BetonWriter(std::unique_ptr<internal::BetonWriting> state);
  std::unique_ptr<internal::BetonWriting> state_;
};

}  // namespace hanji::data
