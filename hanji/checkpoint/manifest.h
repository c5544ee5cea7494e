#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/base/status.h"
#include "hanji/checkpoint/safetensors.h"
#include "hanji/layout/part.h"

namespace hanji::checkpoint {

/// A tensor, or runs of its elements in C order, as it was saved: what a loaded one must be.
struct TensorRecord {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;     ///< Of the whole tensor.
  layout::StridedRange elements;  ///< Those that are here.
  uint64_t checksum = 0;          ///< XXH3 of their bytes.

  bool is_whole() const;
  /// What the file holds: the tensor, one dimension of elements as "NAME[BEGIN:END]", or a matrix whose
  /// rows are the runs, as "NAME[BEGIN:END:STRIDE:COUNT]".
  TensorForm form() const;
};

/// The rank that wrote a file, and its place on the mesh.
struct WriterRecord {
  int64_t rank = 0;
  std::map<std::string, int64_t> coordinates = {};  ///< By axis.

  bool operator==(const WriterRecord&) const = default;
};

/// A file of a checkpoint. Its name is one that file_name() gives, never a path.
struct FileRecord {
  std::string name;
  int64_t size_bytes = 0;
  uint64_t header_checksum = 0;
  std::vector<TensorRecord> tensors = {};  ///< In the order of the file.
  WriterRecord writer = {};
};

inline constexpr std::string_view kModelFile = "model.safetensors";
inline constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
inline constexpr std::string_view kManifestFile = "manifest.json";
/// 1: two files of one writer, which is not named. 2: a pair of files per writer. 3: tensors of several
/// runs; what has none is written as 2.
inline constexpr int64_t kFormatVersion = 3;

enum class StateKind : uint8_t { kModel, kOptimizer };

/// One of the names above where one rank writes all, else "model.part_3.safetensors".
std::string file_name(StateKind kind, int part, int num_parts);
/// What a file of that name holds; nothing for a name that file_name() does not give.
std::optional<StateKind> kind_of_file(std::string_view name);

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

/// How much of a file is read to verify it.
enum class Check : uint8_t {
  kForm,     ///< Its header.
  kContent,  ///< Every byte.
};

/// Compares a file with its record: size, header, and every tensor's type, shape and checksum.
/// Errors  kCorrupt, naming the first tensor that differs.
Status verify(const FileRecord& record, const SafetensorsFile& file, Check check);

}  // namespace hanji::checkpoint
