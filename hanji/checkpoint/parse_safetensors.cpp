#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "hanji/checkpoint/internal/header_scanner.h"
#include "hanji/checkpoint/safetensors.h"

namespace hanji::checkpoint {
namespace {

using internal::HeaderScanner;

struct HeaderEntry {
  NamedTensor tensor;
  int64_t begin = -1;
  int64_t end = -1;
};

struct Header {
  std::vector<HeaderEntry> entries;
  Metadata metadata;
  bool has_metadata = false;
};

Result<DType> dtype_of(std::string_view code) {
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
  // Names come from the file: a short piece of a hostile one is enough to show.
  return base::unsupported(fmt::format(
      "element type '{}' is none of F64 F32 BF16 F16 F8_E4M3 F8_E5M2 I64 I32 I8 U8 BOOL; convert "
      "the tensor first",
      code.substr(0, 16)));
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
    HANJI_ASSIGN_OR_RETURN(const std::string code, scanner.take_string());
    HANJI_ASSIGN_OR_RETURN(entry.tensor.dtype, dtype_of(code));
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
  const auto bytes = dense_bytes(tensor.dtype, tensor.shape);
  if (!bytes || *bytes != entry.end - entry.begin) {
    return refuse(fmt::format("{} has another size", describe(tensor.dtype, tensor.shape)));
  }
  if (*bytes > 0 && entry.begin % static_cast<int64_t>(base::size_of(tensor.dtype)) != 0) {
    return refuse("it is misaligned for its element type; save the file again");
  }
  tensor.bytes = data.subspan(static_cast<size_t>(entry.begin), static_cast<size_t>(*bytes));
  return {};
}

Result<std::vector<NamedTensor>> place_all(std::vector<HeaderEntry> entries,
                                           std::span<const std::byte> data) {
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::vector<NamedTensor> tensors;
  tensors.reserve(entries.size());
  int64_t next = 0;
  for (HeaderEntry& entry : entries) {
    HANJI_RETURN_IF_ERROR(place(entry, next, data));
    next = entry.end;
    tensors.push_back(std::move(entry.tensor));
  }
  if (static_cast<uint64_t>(next) != data.size()) {
    return base::corrupt(
        fmt::format("the tensors end at byte {} of {} bytes of data", next, data.size()));
  }
  return tensors;
}

}  // namespace

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
  if (length % 8 != 0) {
    return base::corrupt(fmt::format(
        "a header of {} bytes leaves the data misaligned; save the file again", length));
  }
  const auto text = file.subspan(sizeof(length), length);
  HANJI_ASSIGN_OR_RETURN(Header header,
                         parse_header({reinterpret_cast<const char*>(text.data()), text.size()}));
  HANJI_RETURN_IF_ERROR(check_names(header.entries));
  const size_t begin = sizeof(length) + length;
  Safetensors content{
      .tensors = {}, .metadata = std::move(header.metadata), .header = file.first(begin)};
  HANJI_ASSIGN_OR_RETURN(content.tensors,
                         place_all(std::move(header.entries), file.subspan(begin)));
  return content;
}

}  // namespace hanji::checkpoint
