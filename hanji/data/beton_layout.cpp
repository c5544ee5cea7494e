#include "hanji/data/internal/beton_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "hanji/base/checksum.h"
#include "hanji/base/json.h"
#include "hanji/base/random.h"
#include "hanji/base/text.h"
#include "hanji/data/internal/little_endian.h"

namespace hanji::data {

std::string_view name_of(BetonType type) {
  switch (type) {
    case BetonType::kFloat: return "float";
    case BetonType::kInt: return "int";
    case BetonType::kRgbImage: return "rgb_image";
    case BetonType::kBytes: return "bytes";
    case BetonType::kNdArray: return "ndarray";
    case BetonType::kJson: return "json";
    case BetonType::kTorchTensor: return "torch_tensor";
  }
  return "unknown";
}

namespace internal {
namespace {

constexpr uint64_t kDimensions = 32;
constexpr uint64_t kLengthAt = 8 * kDimensions;  // in the arguments of an array
constexpr uint64_t kTypeAt = kLengthAt + 8;
constexpr uint64_t kArgumentsAt = 1 + kBetonNameBytes;
constexpr uint64_t kArgumentBytes = kBetonDescriptorBytes - kArgumentsAt;
constexpr uint64_t kMaxValueBytes = kMaxPageBytes;  // a sample lies in one page
constexpr int kCustomType = 255;

struct FieldSize {
  uint64_t bytes;
  uint64_t alignment;
};

FieldSize size_of(BetonType type) {
  if (type == BetonType::kRgbImage) return {13, 1};
  if (type == BetonType::kBytes || type == BetonType::kJson) return {16, 1};
  return {8, 8};
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
}

/// Bytes of an element, from numpy's letter of the kind and the number behind it.
std::optional<uint64_t> item_bytes(std::string_view dtype) {
  if (dtype.size() != 3 || std::string_view("<>|=").find(dtype[0]) == std::string_view::npos) {
    return dtype == "<c16" || dtype == ">c16" ? std::optional<uint64_t>(16) : std::nullopt;
  }
  for (const std::string_view kind :
       {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8"}) {
    if (dtype.substr(1) == kind) return static_cast<uint64_t>(kind[1] - '0');
  }
  return std::nullopt;
}

Result<std::string> parse_dtype(std::string_view text) {
  const auto json = base::parse_json(text, 3, kArgumentBytes);
  if (!json.ok()) return json.status().at("the array type at argument 264");
  const bool one = json->is_array() && json->size() == 1 && (*json)[0].is_array() &&
                   (*json)[0].size() == 2 && (*json)[0][0] == "" && (*json)[0][1].is_string();
  if (one) return (*json)[0][1].get<std::string>();
  return base::unsupported(fmt::format(
      "array type {} is not one unnamed element type; write it as bytes", base::json_quote(text)));
}

Status parse_array(std::span<const std::byte> arguments, BetonField& field) {
  for (uint64_t i = 0; i < kDimensions; ++i) {
    const auto dimension = load<uint64_t>(arguments, 8 * i);
    if (dimension != 0 && field.shape.size() < i) {
      return base::unsupported(
          fmt::format("dimension {} of the shape is 0; write the field without it", i - 1));
    }
    if (dimension != 0) field.shape.push_back(dimension);
  }
  const auto length = load<uint64_t>(arguments, kLengthAt);
  if (length > kArgumentBytes - kTypeAt) {
    return base::corrupt(fmt::format("the array type has {} characters; at most {} fit", length,
                                     kArgumentBytes - kTypeAt));
  }
  const auto* text = reinterpret_cast<const char*>(arguments.data() + kTypeAt);
  HANJI_ASSIGN_OR_RETURN(field.dtype, parse_dtype({text, length}));
  const Status status = array_bytes(field).status();
  return status.code() == Code::kInvalidArgument ? base::corrupt(status.message()) : status;
}

Result<std::string> parse_name(std::span<const std::byte> bytes) {
  std::string_view name(reinterpret_cast<const char*>(bytes.data()), kBetonNameBytes);
  name = name.substr(0, name.find('\0'));
  if (!name.empty() && is_printable(name)) return std::string(name);
  return base::corrupt(fmt::format("its name {} is empty or not ASCII", base::json_quote(name)));
}

Result<BetonType> parse_type(uint8_t number, std::string_view name) {
  if (number <= static_cast<uint8_t>(BetonType::kTorchTensor)) return BetonType(number);
  if (number == kCustomType) {
    return base::unsupported(fmt::format(
        "field '{}' has a custom type (255), which only the program that wrote it can read; write "
        "it as bytes",
        name));
  }
  return base::corrupt(fmt::format("field '{}' has type {}; 0 to 6 and 255 exist", name, number));
}

}  // namespace

uint64_t extension_bytes(uint64_t content_bytes, uint64_t page_bytes) {
  const uint64_t bytes = content_bytes + sizeof(BetonTrailer);
  return bytes % page_bytes == 0 ? bytes + 8 : bytes;
}

bool is_array(BetonType type) {
  return type == BetonType::kNdArray || type == BetonType::kTorchTensor;
}

bool is_in_heap(BetonType type) { return type != BetonType::kInt && type != BetonType::kFloat; }

RecordLayout record_layout(const std::vector<BetonField>& fields) {
  RecordLayout layout;
  uint64_t alignment = 1;
  for (const BetonField& field : fields) {
    const FieldSize size = size_of(field.type);
    layout.offsets.push_back(round_up(layout.bytes, size.alignment));
    layout.bytes = layout.offsets.back() + size.bytes;
    layout.num_images += field.type == BetonType::kRgbImage;
    layout.has_heap |= is_in_heap(field.type);
    alignment = std::max(alignment, size.alignment);
  }
  layout.bytes = round_up(layout.bytes, alignment);
  return layout;
}

Result<BetonField> parse_descriptor(std::span<const std::byte> bytes) {
  BetonField field;
  HANJI_ASSIGN_OR_RETURN(field.name, parse_name(bytes.subspan(1, kBetonNameBytes)));
  HANJI_ASSIGN_OR_RETURN(field.type, parse_type(load<uint8_t>(bytes, 0), field.name));
  if (is_array(field.type)) {
    const Status status = parse_array(bytes.subspan(kArgumentsAt), field);
    if (!status.ok()) return status.at(fmt::format("field '{}'", field.name));
  }
  return field;
}

Status write_descriptor(const BetonField& field, std::span<std::byte> out) {
  if (field.name.empty() || field.name.size() > kBetonNameBytes || !is_printable(field.name)) {
    return base::invalid_argument(
        fmt::format("field name {} has {} bytes; use 1 to {} ASCII characters",
                    base::json_quote(field.name), field.name.size(), kBetonNameBytes));
  }
  std::fill(out.begin(), out.end(), std::byte{0});
  store(out, 0, field.type);
  std::memcpy(out.data() + 1, field.name.data(), field.name.size());
  if (!is_array(field.type)) return {};
  const Status fits = array_bytes(field).status();
  if (!fits.ok()) return fits.at(fmt::format("field '{}'", field.name));
  if (field.shape.empty()) {
    return base::invalid_argument(
        fmt::format("field '{}' has shape (), which FFCV cannot read; use [1]", field.name));
  }
  const std::span<std::byte> arguments = out.subspan(kArgumentsAt);
  for (size_t i = 0; i < field.shape.size(); ++i) store(arguments, 8 * i, field.shape[i]);
  const std::string type = fmt::format("[[\"\", \"{}\"]]", field.dtype);
  store(arguments, kLengthAt, uint64_t{type.size()});
  std::memcpy(arguments.data() + kTypeAt, type.data(), type.size());
  return {};
}

Result<uint64_t> array_bytes(const BetonField& field) {
  const auto item = item_bytes(field.dtype);
  if (!item) {
    return base::unsupported(
        fmt::format("element type {} is no integer, float, complex or bool of numpy; write it as "
                    "bytes",
                    base::json_quote(field.dtype)));
  }
  uint64_t bytes = *item;
  for (const uint64_t dimension : field.shape) {
    if (dimension == 0 || dimension > kMaxValueBytes / bytes || field.shape.size() > kDimensions) {
      return base::invalid_argument(
          fmt::format("a shape of {} dimensions with one of {}: at most {} dimensions, none 0, and "
                      "at most {} bytes fit",
                      field.shape.size(), dimension, kDimensions, kMaxValueBytes));
    }
    bytes *= dimension;
  }
  return bytes;
}

uint32_t record_checksum(std::span<const std::byte> record, std::span<const std::byte> row) {
  return static_cast<uint32_t>(base::mix(base::xxh3(record), base::xxh3(row.subspan(4))));
}

uint64_t add_to_checksum(uint64_t checksum, std::span<const std::byte> bytes) {
  return base::mix(checksum, base::xxh3(bytes));
}

}  // namespace internal
}  // namespace hanji::data
