#include "hanji/launch/control_plane/handshake.h"

#include <algorithm>
#include <cstring>

namespace hanji::launch {
namespace {

/// Labels of one length keep the parts apart.
base::Digest digest(const Token& token, const char (&label)[16], const Transcript& transcript,
                    uint32_t code) {
  return base::hmac_sha256(
      token, {std::as_bytes(std::span(label)), std::as_bytes(std::span(&transcript.hello, 1)),
              transcript.server_nonce, std::as_bytes(std::span(&code, 1))});
}

}  // namespace

base::Digest Transcript::client_proof(const Token& token) const {
  return digest(token, "hanji cp client", *this, 0);
}

base::Digest Transcript::server_proof(const Token& token, uint32_t code) const {
  return digest(token, "hanji cp server", *this, code);
}

base::Digest Transcript::client_key(const Token& token) const {
  return digest(token, "hanji cp key up", *this, 0);
}

base::Digest Transcript::server_key(const Token& token) const {
  return digest(token, "hanji cp key dn", *this, 0);
}

void put_text(std::string_view text, std::span<char> field) {
  std::fill(field.begin(), field.end(), '\0');
  std::copy_n(text.begin(), std::min(text.size(), field.size() - 1), field.begin());
}

std::string text_in(std::span<const char> field) {
  std::string text(field.data(), ::strnlen(field.data(), field.size()));
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return text;
}

}  // namespace hanji::launch
