#include "hanji/base/checksum.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <array>
#include <cstring>
#include <string_view>

#include "hanji/base/checksum_avx2.h"
#include "hanji/base/status.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hanji::base {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr auto kCrcTable = make_crc_table();

uint32_t crc_by_table(uint32_t crc, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint32_t>(byte)) & 0xFF];
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc_by_instruction(uint32_t crc,
                                                              std::span<const std::byte> bytes) {
  uint64_t wide = crc;
  while (bytes.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    wide = _mm_crc32_u64(wide, word);
    bytes = bytes.subspan(8);
  }
  crc = static_cast<uint32_t>(wide);
  for (const std::byte byte : bytes) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(byte));
  return crc;
}
#endif

void require(int result, const char* what) {
  if (result != 1) throw Error(internal(std::string("OpenSSL: ") + what + " failed"));
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~crc_by_instruction(~seed, bytes);
#endif
  return ~crc_by_table(~seed, bytes);
}

uint64_t xxh3(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  constexpr size_t kShort = 240;  // to which XXH3 uses no vectors
  if (bytes.size() > kShort && __builtin_cpu_supports("avx2")) {
    return xxh3_by_avx2(bytes.data(), bytes.size());
  }
#endif
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct Xxh3::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) { XXH3_64bits_reset(state_->xxh); }
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;
Xxh3::~Xxh3() = default;

void Xxh3::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

uint64_t Xxh3::digest() const { return XXH3_64bits_digest(state_->xxh); }

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  require(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr), "SHA-256 start");
}
Sha256::Sha256(const Sha256& other) : context_(std::make_unique<Context>()) {
  require(EVP_MD_CTX_copy_ex(context_->evp, other.context_->evp), "SHA-256 copy");
}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

Sha256& Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()), "SHA-256 update");
  return *this;
}

Sha256& Sha256::update(std::string_view text) {
  return update(std::as_bytes(std::span(text.data(), text.size())));
}

std::string Sha256::hex() const {
  Context copy;
  std::array<unsigned char, 32> digest{};
  require(EVP_MD_CTX_copy_ex(copy.evp, context_->evp), "SHA-256 copy");
  require(EVP_DigestFinal_ex(copy.evp, digest.data(), nullptr), "SHA-256 end");
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace hanji::base
