#include "hanji/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "hanji/base/text.h"
#include "hanji/base/units.h"

// Layout: u64 N, then N bytes of JSON padded with spaces so that the data begins at a multiple of
// 8, then the tensors back to back. {"__metadata__": {...}, "name": {"dtype": "F32", "shape": [2],
// "data_offsets": [begin, end]}} with offsets from the begin of the data.
namespace hanji::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

std::string_view code_of(DType dtype) {
  constexpr std::array<std::string_view, base::kNumDTypes> kCodes = {
      "F64", "F32", "BF16", "F16", "I32", "I64", "U8", "I8", "BOOL", "F8_E4M3", "F8_E5M2"};
  return kCodes[static_cast<size_t>(dtype)];
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = base::utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

Status check_tensor(const TensorForm& tensor) {
  if (!is_utf8(tensor.name) || tensor.name == "__metadata__") {
    return base::invalid_argument(fmt::format("tensor name {} is reserved or not UTF-8; rename it",
                                              base::json_quote(tensor.name)));
  }
  if (dense_bytes(tensor.dtype, tensor.shape)) return {};
  return base::invalid_argument(fmt::format("tensor '{}' is {}, which no memory holds", tensor.name,
                                            describe(tensor.dtype, tensor.shape)));
}

Status check_tensors(std::span<const TensorForm> tensors) {
  std::vector<std::string_view> names;
  for (const TensorForm& tensor : tensors) {
    HANJI_RETURN_IF_ERROR(check_tensor(tensor));
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return base::invalid_argument(fmt::format("two tensors are named '{}'; rename one", *twice));
}

struct NewHeader {
  std::string json;
  int64_t data_bytes = 0;
};

NewHeader header_of(std::span<const TensorForm> tensors, const Metadata& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      json += base::json_quote(key) + ':' + base::json_quote(value) + ',';
    }
    json.back() = '}';
    json += ',';
  }
  int64_t begin = 0;
  for (const TensorForm& tensor : tensors) {
    const int64_t end = begin + *dense_bytes(tensor.dtype, tensor.shape);
    json += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)",
                        base::json_quote(tensor.name), code_of(tensor.dtype),
                        fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  if (json.size() > 1) json.pop_back();
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return {std::move(json), begin};
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    std::span<const TensorForm> tensors,
                                                    const Metadata& metadata) {
  HANJI_RETURN_IF_ERROR(check_tensors(tensors));
  const auto [header, data_bytes] = header_of(tensors, metadata);
  if (header.size() > kMaxHeaderBytes || tensors.size() > kMaxTensors) {
    return base::invalid_argument(fmt::format(
        "{} need a header of {} bytes; a file holds {} and {}",
        base::counted(tensors.size(), "tensor"), header.size(), kMaxTensors, kMaxHeaderBytes));
  }
  HANJI_ASSIGN_OR_RETURN(base::OutputFile file,
                         base::OutputFile::open(path, base::OutputFile::Mode::kNew));
  const uint64_t length = header.size();
  HANJI_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(&length, 1))));
  HANJI_RETURN_IF_ERROR(file.append(header));
  const int64_t size = file.num_bytes() + data_bytes;
  return SafetensorsWriter(std::move(file), size);
}

Status SafetensorsWriter::finish() {
  HANJI_RETURN_IF_ERROR(file_.sync());
  HANJI_RETURN_IF_ERROR(file_.close());
  if (file_.num_bytes() == size_) return {};
  return base::invalid_argument(fmt::format("a file of {} bytes was announced and {} were written",
                                            size_, file_.num_bytes()));
}

Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         const Metadata& metadata) {
  std::vector<NamedTensor> sorted(tensors.begin(), tensors.end());
  sort_for_file(sorted);
  std::vector<TensorForm> forms;
  for (const NamedTensor& tensor : sorted) {
    forms.push_back({tensor.name, tensor.dtype, tensor.shape});
    const auto bytes = dense_bytes(tensor.dtype, tensor.shape);
    if (bytes && static_cast<size_t>(*bytes) == tensor.bytes.size()) continue;
    return base::invalid_argument(fmt::format("tensor '{}' is {} but comes with {} bytes",
                                              tensor.name, describe(tensor.dtype, tensor.shape),
                                              tensor.bytes.size()));
  }
  HANJI_ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::create(path, forms, metadata));
  for (const NamedTensor& tensor : sorted) HANJI_RETURN_IF_ERROR(writer.append(tensor.bytes));
  return writer.finish();
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  HANJI_ASSIGN_OR_RETURN(base::MappedFile mapped, base::MappedFile::open(path));
  SafetensorsFile file;
  file.file_ = std::make_shared<const base::MappedFile>(std::move(mapped));
  auto content = parse_safetensors(file.file_->bytes());
  if (!content.ok()) return content.status().at(path.native());
  file.content_ = std::make_shared<const Safetensors>(*std::move(content));
  return file;
}

const NamedTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::find_if(tensors().begin(), tensors().end(),
                                  [name](const NamedTensor& t) { return t.name == name; });
  return found == tensors().end() ? nullptr : &*found;
}

}  // namespace hanji::checkpoint
