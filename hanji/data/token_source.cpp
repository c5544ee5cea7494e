#include "hanji/data/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hanji/base/checksum.h"
#include "hanji/data/internal/token_kernels.h"

namespace hanji::data {
namespace {

/// What this thread copies next but one: an address that is not read, so that it may be of another source.
thread_local const std::byte* expected = nullptr;

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

Status TokenSource::check_range(int64_t begin, int64_t count) const {
  if (begin >= 0 && count >= 0 && begin <= num_tokens_ && count <= num_tokens_ - begin) return {};
  return base::invalid_argument(
      fmt::format("tokens [{}, {} + {}) asked of a source that holds {}; ask for less", begin,
                  begin, count, num_tokens_));
}

Status TokenSource::copy_tokens(int64_t begin, int64_t count, int64_t* out) const {
  HANJI_RETURN_IF_ERROR(check_range(begin, count));
  internal::widen(width_, at(begin), count, out);
  return {};
}

Status TokenSource::copy_pair(int64_t begin, int64_t count, int64_t vocabulary, int64_t* inputs,
                              int64_t* targets) const {
  HANJI_RETURN_IF_ERROR(check_range(begin, count));
  if (count == num_tokens_ - begin) return check_range(begin, count + 1);  // no token for a target
  const std::byte* coming = std::exchange(expected, nullptr);
  const internal::PairOfRuns runs{at(begin), coming ? coming : at(begin)};
  const internal::IdRange found = internal::widen_pair(width_, runs, count, inputs, targets);
  if (found.least >= 0 && found.largest < vocabulary) return {};
  return check_vocabulary(vocabulary, begin, count + 1);
}

void TokenSource::expect(int64_t begin) const {
  expected = at(std::clamp<int64_t>(begin, 0, num_tokens_));
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
