#include "hanji/data/internal/npy_header.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "hanji/base/text.h"
#include "hanji/data/internal/beton_layout.h"
#include "hanji/data/internal/little_endian.h"

namespace hanji::data::internal {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr size_t kMaxHeaderBytes = size_t{1} << 16;
constexpr size_t kMaxNpyDimensions = 32;

/// Reads the dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class NpyDictionary {
 public:
  explicit NpyDictionary(std::string_view text) : text_(text) {}

  bool parse(NpyHeader& header, bool& is_fortran) {
    int num_keys = 0;
    if (!take("{")) return false;
    while (!take("}")) {
      std::string key;
      if (!take_string(key) || !take(":")) return false;
      const bool good = key == "descr"           ? take_string(header.dtype)
                        : key == "fortran_order" ? take_bool(is_fortran)
                        : key == "shape"         ? take_shape(header.shape)
                                                 : false;
      if (!good || ++num_keys > 3) return false;
      if (!take(",") && peek() != '}') return false;
    }
    skip_spaces();
    return num_keys == 3 && text_.empty();
  }

 private:
  void skip_spaces() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \n"), text_.size()));
  }
  char peek() {
    skip_spaces();
    return text_.empty() ? '\0' : text_.front();
  }
  bool take(std::string_view token) {
    skip_spaces();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  bool take_string(std::string& out) {
    if (!take("'")) return false;
    const size_t end = text_.find('\'');
    if (end == std::string_view::npos) return false;
    out = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return true;
  }
  bool take_bool(bool& out) {
    out = take("True");
    return out || take("False");
  }
  bool take_shape(std::vector<uint64_t>& out) {
    if (!take("(")) return false;
    while (!take(")")) {
      skip_spaces();
      uint64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc() || out.size() == kMaxNpyDimensions) return false;
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      out.push_back(size);
      if (!take(",") && peek() != ')') return false;
    }
    return true;
  }

  std::string_view text_;
};

Status check_size(const NpyHeader& header, uint64_t held) {
  uint64_t bytes = header.item_bytes;
  for (const uint64_t size : header.shape) {
    if (size != 0 && bytes > UINT64_MAX / size)
      return base::corrupt("a shape of more than 2^64 bytes");
    bytes *= size;
  }
  if (bytes == held) return {};
  return base::corrupt(
      fmt::format("{} bytes behind the header, where the shape has {}; copy the "
                  "file again",
                  held, bytes));
}

}  // namespace

Result<NpyHeader> parse_npy(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kNpyMagic) || text.size() < 12) {
    return base::corrupt("no .npy file: it does not begin with \\x93NUMPY");
  }
  const auto version = static_cast<uint8_t>(text[6]);
  if (version < 1 || version > 3) {
    return base::unsupported(fmt::format("version {} of .npy; 1 to 3 are read", version));
  }
  const size_t size_bytes = version == 1 ? 2 : 4;
  const size_t length = version == 1 ? load<uint16_t>(file, 8) : load<uint32_t>(file, 8);
  NpyHeader header{.begin = 8 + size_bytes + length};
  bool is_fortran = false;
  if (length > kMaxHeaderBytes || header.begin > text.size() ||
      !NpyDictionary(text.substr(8 + size_bytes, length)).parse(header, is_fortran)) {
    return base::corrupt(fmt::format(
        "the .npy header of {} bytes at byte {} is no dictionary of descr, fortran_order "
        "and shape; an array of structures is not read",
        length, 8 + size_bytes));
  }
  if (is_fortran && header.shape.size() > 1) {
    return base::unsupported("an array in Fortran order; save numpy.ascontiguousarray(array)");
  }
  HANJI_ASSIGN_OR_RETURN(
      header.item_bytes,
      array_bytes(
          {.name = "npy", .type = BetonType::kNdArray, .shape = {1}, .dtype = header.dtype}));
  HANJI_RETURN_IF_ERROR(check_size(header, text.size() - header.begin));
  return header;
}

}  // namespace hanji::data::internal
