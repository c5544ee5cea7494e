#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/file.h"
#include "hanji/base/status.h"
#include "hanji/checkpoint/named_tensor.h"

namespace hanji::checkpoint {

using Metadata = std::map<std::string, std::string>;

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kMaxTensors = size_t{1} << 20;
inline constexpr size_t kMaxMetadata = size_t{1} << 16;
inline constexpr size_t kMaxDimensions = 64;

/// A tensor without its bytes.
struct TensorForm {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape = {};
};

/// Sorts tensors as files have them: wider element types first, then by name, so that every tensor
/// is aligned.
template <class Tensor>
void sort_for_file(std::vector<Tensor>& tensors) {
  std::ranges::sort(tensors, [](const Tensor& a, const Tensor& b) {
    const size_t a_size = base::size_of(a.dtype);
    const size_t b_size = base::size_of(b.dtype);
    return a_size != b_size ? a_size > b_size : a.name < b.name;
  });
}

/// Writes a safetensors file whose bytes come piece by piece.
///
/// Source  github.com/huggingface/safetensors, README "Format".
class SafetensorsWriter {
 public:
  /// Makes the file with its header. The bytes of `tensors` follow in the order given, which is that
  /// of sort_for_file().
  /// Errors  kInvalidArgument: a repeated or reserved name, a shape of more than 2^63 - 1 bytes,
  ///         text that is not UTF-8, a file that exists. kOutOfMemory on a full disk.
  static Result<SafetensorsWriter> create(const std::filesystem::path& path,
                                          std::span<const TensorForm> tensors,
                                          const Metadata& metadata = {});
  Status append(std::span<const std::byte> bytes) { return file_.append(bytes); }
  /// Waits until the disk has the file. The folder's entry is not synced.
  /// Errors  kInvalidArgument when more or fewer bytes came than the header says.
  Status finish();

 private:
  SafetensorsWriter(base::OutputFile file, int64_t size) : file_(std::move(file)), size_(size) {}

  base::OutputFile file_;
  int64_t size_;  ///< Of the whole file.
};

/// Writes a safetensors file and waits until the disk has it.
/// Errors  as SafetensorsWriter; kInvalidArgument for bytes that do not fit the shape.
Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         const Metadata& metadata = {});

/// A tensor of an element type that hanji does not read, such as U16, F8_E8M0 or F4: it lies in the file, and
/// can be listed and compared, not loaded.
struct ForeignTensor {
  std::string name;
  std::string type;  ///< The file's own word.
  std::vector<int64_t> shape = {};
  std::span<const std::byte> bytes = {};
};

/// "U16 [4, 128]".
std::string describe(const ForeignTensor& tensor);

/// What a safetensors file holds, as views of its bytes.
///
/// Shape   a tensor may begin at any byte, as the format allows: elements are copied, never read in place
///         through a pointer of their type.
struct Safetensors {
  std::vector<NamedTensor> tensors;    ///< In the order of their bytes.
  std::vector<ForeignTensor> foreign;  ///< The others, in that order.
  Metadata metadata;
  std::span<const std::byte> header;  ///< Length and JSON: everything before the data.
};

/// Reads a whole file's bytes without copying tensors, and trusts nothing in them.
///
/// Cost    linear in the header; memory at most a small multiple of it, whatever it claims.
/// Errors  kCorrupt, with the place: a length beyond the file or kMaxHeaderBytes; a header that is
///         not the one JSON object of the format (no nesting beyond it, no repeated key, no foreign
///         key, UTF-8 only); shape, type and offsets that disagree; overlap, hole, or bytes left over.
///         kUnsupported: more tensors, dimensions or metadata than the limits above.
Result<Safetensors> parse_safetensors(std::span<const std::byte> file);

/// A mapped safetensors file; copies share the mapping, which the tensors' bytes point into.
class SafetensorsFile {
 public:
  /// Errors  kNotFound, and those of parse_safetensors(), with the path.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const std::vector<NamedTensor>& tensors() const { return content_->tensors; }
  const std::vector<ForeignTensor>& foreign() const { return content_->foreign; }
  const Metadata& metadata() const { return content_->metadata; }
  std::span<const std::byte> header() const { return content_->header; }
  int64_t size_bytes() const { return static_cast<int64_t>(file_->bytes().size()); }
  /// Null when no tensor has this name.
  const NamedTensor* find(std::string_view name) const;

 private:
  std::shared_ptr<const base::MappedFile> file_;
  std::shared_ptr<const Safetensors> content_;
};

}  // namespace hanji::checkpoint
