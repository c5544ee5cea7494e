#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "hanji/checkpoint/internal/header_scanner.h"
#include "hanji/checkpoint/safetensors.h"

namespace hanji::checkpoint {
namespace {

using internal::HeaderScanner;

struct HeaderEntry {
  NamedTensor tensor;
  std::string foreign_type;  ///< Empty for a type that hanji reads.
  int64_t begin = -1;
  int64_t end = -1;
};

struct Header {
  std::vector<HeaderEntry> entries;
  Metadata metadata;
  bool has_metadata = false;
};

std::optional<DType> dtype_of(std::string_view code) {
  constexpr std::array<std::pair<std::string_view, DType>, base::kNumDTypes> kCodes = {{
      {"F64", DType::kFloat64},
      {"F32", DType::kFloat32},
      {"BF16", DType::kBFloat16},
      {"F16", DType::kFloat16},
      {"I32", DType::kInt32},
      {"I64", DType::kInt64},
      {"U8", DType::kUInt8},
      {"I8", DType::kInt8},
      {"BOOL", DType::kBool},
      {"F8_E4M3", DType::kFloat8E4M3FN},
      {"F8_E5M2", DType::kFloat8E5M2},
  }};
  for (const auto& [name, dtype] : kCodes) {
    if (name == code) return dtype;
  }
  return std::nullopt;
}

/// Bits of an element of the format's other types; nothing for a type that came later.
std::optional<int64_t> foreign_bits(std::string_view code) {
  constexpr std::array<std::pair<std::string_view, int64_t>, 11> kBits = {{
      {"F4", 4},
      {"F6_E2M3", 6},
      {"F6_E3M2", 6},
      {"F8_E8M0", 8},
      {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8},
      {"I16", 16},
      {"U16", 16},
      {"U32", 32},
      {"U64", 64},
      {"C64", 64},
  }};
  const auto* found = std::ranges::find(kBits, code, &std::pair<std::string_view, int64_t>::first);
  if (found == kBits.end()) return std::nullopt;
  return found->second;
}

Status take_type(HeaderScanner& scanner, HeaderEntry& entry) {
  constexpr size_t kMaxTypeBytes = 32;
  HANJI_ASSIGN_OR_RETURN(std::string code, scanner.take_string());
  if (code.empty() || code.size() > kMaxTypeBytes) {
    return scanner.error(
        fmt::format("an element type is a word of at most {} bytes", kMaxTypeBytes));
  }
  if (const auto dtype = dtype_of(code)) {
    entry.tensor.dtype = *dtype;
  } else {
    entry.foreign_type = std::move(code);
  }
  return {};
}

Result<std::vector<int64_t>> take_integers(HeaderScanner& scanner, size_t most) {
  std::vector<int64_t> values;
  HANJI_RETURN_IF_ERROR(scanner.take('['));
  if (scanner.try_take(']')) return values;
  do {
    if (values.size() == most) return scanner.error(fmt::format("more than {} numbers", most));
    HANJI_ASSIGN_OR_RETURN(const int64_t value, scanner.take_integer());
    values.push_back(value);
  } while (scanner.try_take(','));
  HANJI_RETURN_IF_ERROR(scanner.take(']'));
  return values;
}

// One member of a tensor's object. `seen` holds a bit per key: all three come exactly once.
Status take_member(HeaderScanner& scanner, HeaderEntry& entry, unsigned& seen) {
  HANJI_ASSIGN_OR_RETURN(const std::string key, scanner.take_string());
  HANJI_RETURN_IF_ERROR(scanner.take(':'));
  const unsigned bit = key == "dtype" ? 1u : key == "shape" ? 2u : key == "data_offsets" ? 4u : 0u;
  if (bit == 0 || (seen & bit) != 0) return scanner.error("a foreign or repeated key of a tensor");
  seen |= bit;
  if (bit == 1) {
    HANJI_RETURN_IF_ERROR(take_type(scanner, entry));
  } else if (bit == 2) {
    HANJI_ASSIGN_OR_RETURN(entry.tensor.shape, take_integers(scanner, kMaxDimensions));
  } else {
    HANJI_ASSIGN_OR_RETURN(const auto offsets, take_integers(scanner, 2));
    if (offsets.size() != 2) return scanner.error("data_offsets are two numbers");
    entry.begin = offsets[0];
    entry.end = offsets[1];
  }
  return {};
}

Status take_tensor(HeaderScanner& scanner, HeaderEntry& entry) {
  unsigned seen = 0;
  HANJI_RETURN_IF_ERROR(scanner.take('{'));
  do {
    HANJI_RETURN_IF_ERROR(take_member(scanner, entry, seen));
  } while (scanner.try_take(','));
  HANJI_RETURN_IF_ERROR(scanner.take('}'));
  return seen == 7 ? Status() : scanner.error("a tensor has dtype, shape and data_offsets");
}

Status take_metadata(HeaderScanner& scanner, Metadata& metadata) {
  HANJI_RETURN_IF_ERROR(scanner.take('{'));
  if (scanner.try_take('}')) return {};
  do {
    if (metadata.size() == kMaxMetadata) {
      return base::unsupported(fmt::format("more than {} metadata entries", kMaxMetadata));
    }
    HANJI_ASSIGN_OR_RETURN(std::string key, scanner.take_string());
    HANJI_RETURN_IF_ERROR(scanner.take(':'));
    HANJI_ASSIGN_OR_RETURN(std::string value, scanner.take_string());
    if (!metadata.emplace(std::move(key), std::move(value)).second) {
      return scanner.error("a metadata key comes twice");
    }
  } while (scanner.try_take(','));
  return scanner.take('}');
}

// One member of the whole: the metadata, or a tensor.
Status take_entry(HeaderScanner& scanner, Header& header) {
  HANJI_ASSIGN_OR_RETURN(std::string name, scanner.take_string());
  HANJI_RETURN_IF_ERROR(scanner.take(':'));
  if (name == "__metadata__") {
    if (std::exchange(header.has_metadata, true)) return scanner.error("__metadata__ comes twice");
    return take_metadata(scanner, header.metadata);
  }
  if (header.entries.size() == kMaxTensors) {
    return base::unsupported(fmt::format("more than {} tensors", kMaxTensors));
  }
  HeaderEntry& entry = header.entries.emplace_back();
  entry.tensor.name = std::move(name);
  return take_tensor(scanner, entry).at("tensor '" + entry.tensor.name.substr(0, 200) + "'");
}

Result<Header> parse_header(std::string_view json) {
  Header header;
  HeaderScanner scanner(json);
  if (!json.starts_with('{')) return scanner.error("'{' must stand here");
  HANJI_RETURN_IF_ERROR(scanner.take('{'));
  if (!scanner.try_take('}')) {
    do {
      HANJI_RETURN_IF_ERROR(take_entry(scanner, header));
    } while (scanner.try_take(','));
    HANJI_RETURN_IF_ERROR(scanner.take('}'));
  }
  HANJI_RETURN_IF_ERROR(scanner.take_end());
  return header;
}

Status check_names(const std::vector<HeaderEntry>& entries) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const HeaderEntry& entry : entries) names.push_back(entry.tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return base::corrupt(fmt::format("two tensors are named '{}'", twice->substr(0, 200)));
}

/// Whether a tensor of this type and shape has so many bytes, as far as hanji knows the type.
bool fits(const HeaderEntry& entry, int64_t bytes) {
  const NamedTensor& tensor = entry.tensor;
  if (entry.foreign_type.empty()) return dense_bytes(tensor.dtype, tensor.shape) == bytes;
  const auto bits = foreign_bits(entry.foreign_type);
  if (!bits) return true;
  const auto elements = dense_bytes(DType::kUInt8, tensor.shape);
  int64_t all = 0;
  return elements && !__builtin_mul_overflow(*elements, *bits, &all) && all % 8 == 0 &&
         all / 8 == bytes;
}

std::string form_of(const HeaderEntry& entry) {
  const NamedTensor& tensor = entry.tensor;
  if (entry.foreign_type.empty()) return describe(tensor.dtype, tensor.shape);
  return describe(ForeignTensor{tensor.name, entry.foreign_type, tensor.shape});
}

// `next` is where the tensor must begin: behind the one before it, without hole or overlap.
Status place(HeaderEntry& entry, int64_t next, std::span<const std::byte> data) {
  NamedTensor& tensor = entry.tensor;
  const auto refuse = [&](std::string_view why) {
    return base::corrupt(fmt::format("tensor '{}', bytes [{}, {}) of {}: {}",
                                     tensor.name.substr(0, 200), entry.begin, entry.end,
                                     data.size(), why));
  };
  if (entry.begin != next) {
    return refuse(fmt::format("byte {} must come next, so it overlaps or leaves a hole", next));
  }
  if (entry.end < entry.begin || static_cast<uint64_t>(entry.end) > data.size()) {
    return refuse("it leaves the file");
  }
  const int64_t bytes = entry.end - entry.begin;
  if (!fits(entry, bytes)) return refuse(fmt::format("{} has another size", form_of(entry)));
  tensor.bytes = data.subspan(static_cast<size_t>(entry.begin), static_cast<size_t>(bytes));
  return {};
}

Status place_all(std::vector<HeaderEntry> entries, std::span<const std::byte> data,
                 Safetensors& content) {
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  content.tensors.reserve(entries.size());
  int64_t next = 0;
  for (HeaderEntry& entry : entries) {
    HANJI_RETURN_IF_ERROR(place(entry, next, data));
    next = entry.end;
    NamedTensor& tensor = entry.tensor;
    if (entry.foreign_type.empty()) {
      content.tensors.push_back(std::move(tensor));
    } else {
      content.foreign.push_back({std::move(tensor.name), std::move(entry.foreign_type),
                                 std::move(tensor.shape), tensor.bytes});
    }
  }
  if (static_cast<uint64_t>(next) != data.size()) {
    return base::corrupt(
        fmt::format("the tensors end at byte {} of {} bytes of data", next, data.size()));
  }
  return {};
}

}  // namespace

std::string describe(const ForeignTensor& tensor) {
  return fmt::format("{} [{}]", tensor.type, fmt::join(tensor.shape, ", "));
}

Result<Safetensors> parse_safetensors(std::span<const std::byte> file) {
  uint64_t length = 0;
  if (file.size() < sizeof(length)) {
    return base::corrupt(fmt::format("{} bytes are too few for a safetensors file", file.size()));
  }
  std::memcpy(&length, file.data(), sizeof(length));
  const uint64_t rest = file.size() - sizeof(length);
  if (length > kMaxHeaderBytes || length > rest) {
    return base::corrupt(fmt::format(
        "the header claims {} bytes; the file has {} and the format {}: it was cut, or is "
        "no safetensors file; copy it again, or name another",
        length, rest, kMaxHeaderBytes));
  }
  const auto text = file.subspan(sizeof(length), length);
  HANJI_ASSIGN_OR_RETURN(Header header,
                         parse_header({reinterpret_cast<const char*>(text.data()), text.size()}));
  HANJI_RETURN_IF_ERROR(check_names(header.entries));
  const size_t begin = sizeof(length) + length;
  Safetensors content{.tensors = {},
                      .foreign = {},
                      .metadata = std::move(header.metadata),
                      .header = file.first(begin)};
  HANJI_RETURN_IF_ERROR(place_all(std::move(header.entries), file.subspan(begin), content));
  return content;
}

}  // namespace hanji::checkpoint
