#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "hanji/base/status.h"

namespace hanji::data {

/// How one token id lies in memory: little-endian, without padding.
enum class TokenWidth : uint8_t { kUInt8, kInt8, kUInt16, kInt16, kInt32, kUInt32, kInt64 };

/// Bytes of one token.
size_t size_of(TokenWidth width);

/// A read-only run of token ids of any width, in memory or in a mapped file.
///
/// The owner keeps the bytes alive; a copy of the source is a second handle on the same bytes.
/// Cost    no memory beyond the bytes themselves; ids are widened while they are copied out.
/// Thread  any number of threads may read one source.
class TokenSource {
 public:
  TokenSource() = default;
  /// `bytes` must hold whole tokens and stay valid while `owner` lives. Alignment is not needed.
  TokenSource(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
              TokenWidth width);

  int64_t num_tokens() const { return num_tokens_; }
  TokenWidth width() const { return width_; }
  /// Of all tokens, one after the other.
  std::span<const std::byte> bytes() const { return bytes_; }

  /// Writes tokens [begin, begin + count) to `out`.
  /// Errors  kInvalidArgument when the range leaves the source.
  Status copy_tokens(int64_t begin, int64_t count, int64_t* out) const;
  /// Writes tokens [begin, begin + count) to `inputs` and [begin + 1, begin + count + 1) to `targets`.
  /// Cost    once over the tokens, which are compared with the vocabulary as they are copied.
  /// Errors  those of copy_tokens() and check_vocabulary().
  Status copy_pair(int64_t begin, int64_t count, int64_t vocabulary, int64_t* inputs,
                   int64_t* targets) const;
  /// Says that the calling thread copies tokens from `begin` on after the next copy_pair(), which brings as
  /// many as it has itself towards the processor's caches.
  void expect(int64_t begin) const;

  /// Reads as many tokens from `begin` on, or those that there are, once, and refuses one that no
  /// vocabulary of this size holds.
  /// Errors  kCorrupt, naming the first such id, its position and the vocabulary.
  Status check_vocabulary(int64_t vocabulary, int64_t begin = 0, int64_t count = INT64_MAX) const;

  /// Reads every token once; -1 when there is none.
  int64_t largest_token() const;

  /// The checksum of the bytes, for a manifest that must recognise its text again.
  uint64_t checksum() const;

 private:
  Status check_range(int64_t begin, int64_t count) const;
  const std::byte* at(int64_t position) const {
    return bytes_.data() + position * static_cast<int64_t>(size_of(width_));
  }

  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
  TokenWidth width_ = TokenWidth::kUInt8;
  int64_t num_tokens_ = 0;
};

}  // namespace hanji::data
