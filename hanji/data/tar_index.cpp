#include "hanji/data/internal/tar_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "hanji/base/text.h"

namespace hanji::data::internal {
namespace {

constexpr uint64_t kTarBlock = 512;
constexpr uint64_t kMaxNameBytes = 4096;  // PATH_MAX
constexpr uint64_t kMaxPaxBytes = uint64_t{1} << 20;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Up to a zero byte.
std::string_view text_field(std::span<const std::byte> header, size_t at, size_t size) {
  const std::string_view text = text_of(header.subspan(at, size));
  return text.substr(0, text.find('\0'));
}

/// Octal digits between spaces, or GNU's binary number with the first bit set.
std::optional<uint64_t> number_field(std::span<const std::byte> header, size_t at, size_t size) {
  uint64_t value = 0;
  if ((header[at] & std::byte{0x80}) != std::byte{0}) {
    for (size_t i = 0; i < size; ++i) {
      const auto byte = static_cast<uint8_t>(header[at + i] & std::byte(i == 0 ? 0x7F : 0xFF));
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | byte;
    }
    return value;
  }
  std::string_view text = text_field(header, at, size);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, text.find(' '));
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool has_right_checksum(std::span<const std::byte> header) {
  constexpr size_t kAt = 148, kSize = 8;
  uint64_t sum = kSize * ' ';
  for (size_t i = 0; i < header.size(); ++i) {
    if (i < kAt || i >= kAt + kSize) sum += static_cast<uint8_t>(header[i]);
  }
  return number_field(header, kAt, kSize) == sum;
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

/// What the headers before a file's own say of it.
struct Announced {
  std::string name = {};
  std::optional<uint64_t> size = {};
};

class TarIndexer {
 public:
  explicit TarIndexer(std::span<const std::byte> archive) : archive_(archive) {}

  Result<std::vector<TarMember>> run() {
    if (text_of(archive_).starts_with("\x1F\x8B") ||
        text_of(archive_).starts_with("\x28\xB5\x2F\xFD")) {
      return base::unsupported("a compressed archive; unpack it to .tar first");
    }
    while (archive_.size() - at_ >= kTarBlock) {
      const auto header = archive_.subspan(at_, kTarBlock);
      if (is_zero(header)) return std::move(members_);
      HANJI_RETURN_IF_ERROR(read_header(header));
    }
    return damaged("ends without the block of zeros behind the last file: it was cut");
  }

 private:
  Status damaged(std::string_view what) const {
    return base::corrupt(fmt::format("byte {} of the archive {}; copy it again", at_, what));
  }

  Status read_header(std::span<const std::byte> header) {
    if (!has_right_checksum(header)) return damaged("has no header of a file with its checksum");
    const auto kind = static_cast<char>(header[156]);
    const bool is_file = kind == '0' || kind == '\0' || kind == '7';
    auto size = number_field(header, 124, 12);
    if (is_file && announced_.size) size = announced_.size;
    const uint64_t behind = archive_.size() - at_ - kTarBlock;
    if (!size || *size > behind) {
      return damaged(
          fmt::format("has a file of {} bytes, with {} behind it", size.value_or(0), behind));
    }
    const auto content = archive_.subspan(at_ + kTarBlock, *size);
    HANJI_RETURN_IF_ERROR(is_file ? add_file(header, *size) : read_special(kind, header, content));
    const uint64_t padded = (*size + kTarBlock - 1) / kTarBlock * kTarBlock;
    at_ += kTarBlock + std::min(padded, behind);
    return {};
  }

  Status add_file(std::span<const std::byte> header, uint64_t size) {
    std::string name = std::exchange(announced_, {}).name;
    if (name.empty()) {
      const bool is_posix = text_of(header.subspan(257, 6)) == std::string_view("ustar\0", 6);
      const std::string_view prefix = is_posix ? text_field(header, 345, 155) : std::string_view();
      name = prefix.empty() ? "" : std::string(prefix) + "/";
      name += text_field(header, 0, 100);
    }
    while (name.starts_with("./")) name.erase(0, 2);
    const auto parts = base::split(name, '/');
    const bool leaves = name.empty() || name.front() == '/' || name.size() > kMaxNameBytes ||
                        std::ranges::find(parts, "..") != parts.end();
    if (leaves || name.find('\0') != std::string::npos) {
      return damaged(fmt::format("names a file {}, which is no path below a folder",
                                 base::json_quote(name.substr(0, 200))));
    }
    members_.push_back({.name = std::move(name), .begin = at_ + kTarBlock, .size = size});
    return {};
  }

  Status read_special(char kind, std::span<const std::byte> header,
                      std::span<const std::byte> content) {
    if (kind == '5') announced_ = {};  // the name of the folder
    if (kind == '5' || kind == 'g' || kind == 'K') return {};
    if (kind == 'L' && content.size() <= kMaxNameBytes) {
      announced_.name = text_of(content).substr(0, text_of(content).find('\0'));
      return {};
    }
    if (kind == 'x' && content.size() <= kMaxPaxBytes) return read_pax(text_of(content));
    return base::unsupported(
        fmt::format("byte {} of the archive: {} is a member of kind '{}' and no regular file; "
                    "make the archive without it",
                    at_, base::json_quote(text_field(header, 0, 100)), kind));
  }

  /// Records "LENGTH key=value\n", whose length counts itself.
  Status read_pax(std::string_view records) {
    while (!records.empty()) {
      size_t length = 0;
      const auto [end, error] =
          std::from_chars(records.data(), records.data() + records.size(), length);
      const auto digits = static_cast<size_t>(end - records.data());
      if (error != std::errc() || length < digits + 3 || length > records.size() ||
          records[digits] != ' ' || records[length - 1] != '\n') {
        return damaged("has an extended header whose records do not fit it");
      }
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      records.remove_prefix(length);
      const size_t equals = record.find('=');
      const std::string_view key = record.substr(0, equals);
      const std::string_view value = record.substr(std::min(equals, record.size() - 1) + 1);
      if (key == "path") announced_.name = value;
      if (key == "size") HANJI_RETURN_IF_ERROR(read_pax_size(value));
      if (key.starts_with("GNU.sparse")) {
        return base::unsupported(fmt::format(
            "byte {} of the archive: a sparse file; make the archive without --sparse", at_));
      }
    }
    return {};
  }

  Status read_pax_size(std::string_view value) {
    uint64_t size = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (error != std::errc() || end != value.data() + value.size()) {
      return damaged("has an extended header whose size is no number");
    }
    announced_.size = size;
    return {};
  }

  std::span<const std::byte> archive_;
  uint64_t at_ = 0;
  Announced announced_;
  std::vector<TarMember> members_;
};

}  // namespace

Result<std::vector<TarMember>> index_tar(std::span<const std::byte> archive) {
  return TarIndexer(archive).run();
}

}  // namespace hanji::data::internal
