#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/base/status.h"
#include "hanji/checkpoint/safetensors.h"

namespace hanji::checkpoint {

/// A tensor as it was saved: what a loaded one must be.
struct TensorRecord {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  uint64_t checksum = 0;  ///< XXH3 of the bytes.
};

/// A file of a checkpoint. Its name is one of kModelFile and kOptimizerFile, never a path.
struct FileRecord {
  std::string name;
  int64_t size_bytes = 0;
  uint64_t header_checksum = 0;
  std::vector<TensorRecord> tensors = {};  ///< In the order of the file.
};

inline constexpr std::string_view kModelFile = "model.safetensors";
inline constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr int64_t kFormatVersion = 1;

/// What a checkpoint is, beside its tensors: enough to continue the run, and to refuse another.
struct Manifest {
  int64_t step = 0;             ///< Steps done.
  int64_t num_samples = 0;      ///< Samples consumed: the position in the order of the data.
  std::string job = "{}";       ///< JSON: model, vocabulary, seed, grain, checksum of the text.
  std::string plan = "{}";      ///< JSON: the Plan of the run that saved.
  std::string state_hash = {};  ///< state_hash() of the tensors; empty when it was not taken.
  std::optional<double> validation_loss = {};
  std::string writer = {};             ///< Version of the program that saved.
  std::vector<FileRecord> files = {};  ///< Filled by save_checkpoint().
};

/// JSON that ends with a checksum of every byte before it.
/// Errors  kInvalidArgument when job or plan is not JSON, or the loss is not finite.
Result<std::string> to_text(const Manifest& manifest);

/// Reads what to_text() wrote.
/// Errors  kCorrupt: a wrong checksum, or anything that to_text() does not write. kUnsupported: a
///         newer format version.
Result<Manifest> parse_manifest(std::string_view text);

/// Records a file as it lies in memory, checksums and all.
FileRecord record_of(std::string_view name, const SafetensorsFile& file);

/// Compares a file with its record: size, header, and every tensor's type, shape and checksum.
/// Errors  kCorrupt, naming the first tensor that differs.
Status verify(const FileRecord& record, const SafetensorsFile& file);

}  // namespace hanji::checkpoint
