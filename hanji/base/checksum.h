#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace hanji::base {

/// CRC-32C (Castagnoli). `seed` is the result for the bytes before these.
/// Source  RFC 3720 B.4: 32 zero bytes give 0x8A9136AA.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed = 0);

/// XXH3-64, for accidents, not for attackers.
uint64_t xxh3(std::span<const std::byte> bytes);

/// XXH3-64 of bytes given piece by piece.
class Xxh3 {
 public:
  Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;
  ~Xxh3();

  void update(std::span<const std::byte> bytes);
  /// Of all bytes so far; more may follow.
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// SHA-256 of bytes given piece by piece.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256& other);
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  Sha256& update(std::span<const std::byte> bytes);
  Sha256& update(std::string_view text);
  /// 64 lower-case digits of all bytes so far; more may follow.
  std::string hex() const;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace hanji::base
