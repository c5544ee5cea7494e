#include "hanji/data/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "hanji/base/checksum.h"

namespace hanji::data {
namespace {

// memcpy per element: a Megatron index starts at byte 34, so nothing here may assume alignment.
template <class T>
void widen(const std::byte* from, int64_t count, int64_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(value);
  }
}

void widen(TokenWidth width, const std::byte* from, int64_t count, int64_t* out) {
  switch (width) {
    case TokenWidth::kUInt8: return widen<uint8_t>(from, count, out);
    case TokenWidth::kInt8: return widen<int8_t>(from, count, out);
    case TokenWidth::kUInt16: return widen<uint16_t>(from, count, out);
    case TokenWidth::kInt16: return widen<int16_t>(from, count, out);
    case TokenWidth::kInt32: return widen<int32_t>(from, count, out);
    case TokenWidth::kUInt32: return widen<uint32_t>(from, count, out);
    case TokenWidth::kInt64: return widen<int64_t>(from, count, out);
  }
}

constexpr int64_t kTokensAtOnce = 4096;

}  // namespace

size_t size_of(TokenWidth width) {
  switch (width) {
    case TokenWidth::kUInt8:
    case TokenWidth::kInt8: return 1;
    case TokenWidth::kUInt16:
    case TokenWidth::kInt16: return 2;
    case TokenWidth::kInt32:
    case TokenWidth::kUInt32: return 4;
    case TokenWidth::kInt64: return 8;
  }
  return 1;
}

TokenSource::TokenSource(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                         TokenWidth width)
    : owner_(std::move(owner)),
      bytes_(bytes),
      width_(width),
      num_tokens_(static_cast<int64_t>(bytes.size() / size_of(width))) {}

Status TokenSource::copy_tokens(int64_t begin, int64_t count, int64_t* out) const {
  if (begin < 0 || count < 0 || begin > num_tokens_ || count > num_tokens_ - begin) {
    return base::invalid_argument(
        fmt::format("tokens [{}, {} + {}) asked of a source that holds {}; ask for less", begin,
                    begin, count, num_tokens_));
  }
  widen(width_, bytes_.data() + begin * static_cast<int64_t>(size_of(width_)), count, out);
  return {};
}

Status TokenSource::check_vocabulary(int64_t vocabulary, int64_t most_tokens) const {
  std::array<int64_t, kTokensAtOnce> block;
  const int64_t all = std::min(num_tokens_, most_tokens);
  for (int64_t begin = 0; begin < all; begin += kTokensAtOnce) {
    const int64_t count = std::min(kTokensAtOnce, all - begin);
    HANJI_RETURN_IF_ERROR(copy_tokens(begin, count, block.data()));
    const auto end = block.begin() + count;
    const auto bad = std::find_if(block.begin(), end, [vocabulary](int64_t token) {
      return token < 0 || token >= vocabulary;
    });
    if (bad != end) {
      return base::corrupt(fmt::format(
          "token {} at position {} lies outside a vocabulary of {}; set model.vocabulary to at "
          "least {} or tokenize again",
          *bad, begin + (bad - block.begin()), vocabulary, largest_token() + 1));
    }
  }
  return {};
}

int64_t TokenSource::largest_token() const {
  std::array<int64_t, kTokensAtOnce> block;
  int64_t largest = -1;
  for (int64_t begin = 0; begin < num_tokens_; begin += kTokensAtOnce) {
    const int64_t count = std::min(kTokensAtOnce, num_tokens_ - begin);
    if (!copy_tokens(begin, count, block.data()).ok()) break;
    largest = std::max(largest, *std::max_element(block.begin(), block.begin() + count));
  }
  return largest;
}

uint64_t TokenSource::checksum() const { return base::xxh3(bytes_); }

}  // namespace hanji::data
