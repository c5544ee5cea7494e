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

/// SHA-256 of bytes given piece by piece.
class Sha256 {
 public:
  Sha256();
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
