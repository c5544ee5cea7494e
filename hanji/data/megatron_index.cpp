#include <fmt/format.h>

#include <array>
#include <cstring>

#include "hanji/data/internal/little_endian.h"
#include "hanji/data/token_file.h"

// Byte layout of an index, little-endian, no padding (so every array is unaligned):
//   0  "MMIDIDX\0\0"   9  u64 version = 1   17  u8 element type   18  u64 sequences S
//   26 u64 entries D of the document array   34  i32 lengths[S]   34+4S  i64 pointers[S]
//   34+12S  i64 documents[D], ascending from 0 to S   34+12S+8D  nothing, or i8 modes[S]
namespace hanji::data {
namespace {

using internal::load;

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr uint64_t kIndexHeaderBytes = 34;

struct Counts {
  uint64_t sequences = 0;
  uint64_t documents = 0;
  TokenWidth width = TokenWidth::kUInt16;
};

Result<TokenWidth> width_of(uint8_t code) {
  constexpr std::array kWidths = {TokenWidth::kUInt8, TokenWidth::kInt8, TokenWidth::kInt16,
                                  TokenWidth::kInt32, TokenWidth::kInt64};
  if (code >= 1 && code <= kWidths.size()) return kWidths[code - 1];
  if (code == 8) return TokenWidth::kUInt16;
  if (code == 6 || code == 7) {
    return base::unsupported(fmt::format(
        "element type {} at byte 17 is floating point, and token ids are integers; tokenize again",
        code));
  }
  return base::corrupt(fmt::format("element type {} at byte 17 is none of 1 to 8", code));
}

Result<Counts> parse_header(std::span<const std::byte> index) {
  if (index.size() < kIndexHeaderBytes || std::memcmp(index.data(), kMagic, sizeof(kMagic)) != 0) {
    return base::corrupt(
        fmt::format("no Megatron index: {} bytes, or not the magic MMIDIDX; name its format with "
                    "data.format (hanji data make: --format)",
                    index.size()));
  }
  if (const auto version = load<uint64_t>(index, 9); version != 1) {
    return base::corrupt(fmt::format("Megatron index version is {}, not 1", version));
  }
  Counts counts{.sequences = load<uint64_t>(index, 18), .documents = load<uint64_t>(index, 26)};
  HANJI_ASSIGN_OR_RETURN(counts.width, width_of(load<uint8_t>(index, 17)));
  // Compared before they are multiplied: a count of 2^61 must not wrap round to a small size.
  const uint64_t limit = index.size() / 8;
  const uint64_t expected = kIndexHeaderBytes + 12 * counts.sequences + 8 * counts.documents;
  const bool bounded = counts.sequences <= limit && counts.documents <= limit;
  if (!bounded || (index.size() != expected && index.size() != expected + counts.sequences)) {
    return base::corrupt(fmt::format(
        "the index promises {} sequences and {} document entries, which do not fit its {} bytes; "
        "copy it again",
        counts.sequences, counts.documents, index.size()));
  }
  return counts;
}

Status check_documents(std::span<const std::byte> index, const Counts& counts) {
  const uint64_t begin = kIndexHeaderBytes + 12 * counts.sequences;
  int64_t previous = 0;
  for (uint64_t i = 0; i < counts.documents; ++i) {
    const auto entry = load<int64_t>(index, begin + 8 * i);
    const bool first = i == 0 && entry != 0;
    if (first || entry < previous || static_cast<uint64_t>(entry) > counts.sequences) {
      return base::corrupt(
          fmt::format("document entry {} at byte {} is {}; entries ascend from 0 to {} sequences",
                      i, begin + 8 * i, entry, counts.sequences));
    }
    previous = entry;
  }
  return {};
}

}  // namespace

Result<TokenLayout> parse_megatron_index(std::span<const std::byte> index, uint64_t bin_bytes) {
  HANJI_ASSIGN_OR_RETURN(const Counts counts, parse_header(index));
  HANJI_RETURN_IF_ERROR(check_documents(index, counts));
  const uint64_t width = size_of(counts.width);
  uint64_t position = 0;  // Never beyond bin_bytes, so nothing below can wrap.
  for (uint64_t i = 0; i < counts.sequences; ++i) {
    const auto length = load<int32_t>(index, kIndexHeaderBytes + 4 * i);
    const auto pointer = load<int64_t>(index, kIndexHeaderBytes + 4 * counts.sequences + 8 * i);
    const bool in_order = pointer >= 0 && static_cast<uint64_t>(pointer) == position;
    if (length < 0 || !in_order || static_cast<uint64_t>(length) > (bin_bytes - position) / width) {
      return base::corrupt(fmt::format(
          "sequence {} has {} tokens at byte {} of the .bin file, where byte {} of {} is "
          "next; sequences must lie back to back (write the pair again)",
          i, length, pointer, position, bin_bytes));
    }
    position += static_cast<uint64_t>(length) * width;
  }
  if (position != bin_bytes || position == 0) {
    return base::corrupt(
        fmt::format("the sequences end at byte {} of a .bin file of {}; copy the pair again",
                    position, bin_bytes));
  }
  return TokenLayout{counts.width, position / width, 0};
}

}  // namespace hanji::data
