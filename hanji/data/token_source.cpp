#include "hanji/data/token_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/checksum.h"
#include "hanji/data/internal/token_kernels.h"

namespace hanji::data {
namespace {

constexpr int64_t kCacheLine = 64;

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
  internal::widen(width_, at(begin), count, out);
  return {};
}

void TokenSource::expect(int64_t begin, int64_t count) const {
  const std::byte* end = at(std::clamp<int64_t>(begin + count, 0, num_tokens_));
  for (const std::byte* line = at(std::clamp<int64_t>(begin, 0, num_tokens_)); line < end;
       line += kCacheLine) {
    __builtin_prefetch(line);
  }
}

Status TokenSource::check_vocabulary(int64_t vocabulary, int64_t begin, int64_t count) const {
  const int64_t first = std::clamp<int64_t>(begin, 0, num_tokens_);
  const int64_t read = std::clamp<int64_t>(count, 0, num_tokens_ - first);
  const internal::IdRange range = internal::range_of(width_, at(first), read);
  if (read == 0 || (range.least >= 0 && range.largest < vocabulary)) return {};
  int64_t position = first, id = 0;
  for (;; ++position) {
    internal::widen(width_, at(position), 1, &id);
    if (id < 0 || id >= vocabulary) break;
  }
  return base::corrupt(fmt::format(
      "token {} at position {} lies outside a vocabulary of {}; set model.vocabulary to "
      "at least {} or tokenize again",
      id, position, vocabulary, range.largest + 1));
}

int64_t TokenSource::largest_token() const {
  return std::max<int64_t>(-1, internal::range_of(width_, at(0), num_tokens_).largest);
}

uint64_t TokenSource::checksum() const { return base::xxh3(bytes_); }

}  // namespace hanji::data
