#include "hanji/base/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <cerrno>
#include <memory>

namespace hanji::base {
namespace {

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

void require(bool holds, const char* what) {
  if (!holds) throw Error(internal(std::string("OpenSSL: HMAC ") + what + " failed"));
}

}  // namespace

Digest hmac_sha256(std::span<const std::byte> key,
                   std::initializer_list<std::span<const std::byte>> parts) {
  const std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)> mac(
      EVP_MAC_fetch(nullptr, "HMAC", nullptr), &EVP_MAC_free);
  require(mac != nullptr, "fetch");
  const std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> context(
      EVP_MAC_CTX_new(mac.get()), &EVP_MAC_CTX_free);
  char name[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string("digest", name, 0),
                                   OSSL_PARAM_construct_end()};
  require(EVP_MAC_init(context.get(), raw(key), key.size(), parameters) == 1, "start");
  for (const auto part : parts) {
    require(EVP_MAC_update(context.get(), raw(part), part.size()) == 1, "update");
  }
  Digest digest{};
  size_t size = 0;
  require(EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(digest.data()), &size,
                        digest.size()) == 1,
          "end");
  return digest;
}

bool equal_secrets(std::span<const std::byte> left, std::span<const std::byte> right) {
  return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

Status fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return from_errno("random bytes", errno);
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return {};
}

}  // namespace hanji::base
