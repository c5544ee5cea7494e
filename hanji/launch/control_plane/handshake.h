#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hanji/base/secret.h"
#include "hanji/base/status.h"
#include "hanji/launch/control_plane/token.h"

/// How both ends of a connection prove that they know the run's token, before a byte of it means
/// anything to the other:
///
///   client                                                server
///   Hello: who, world, version, build, own nonce    -->   kept unread
///                                                   <--   nonce
///   HMAC(token, "client", hello, nonce)             -->   compared; only now the hello is read
///   compared                                        <--   code, HMAC(token, "server", hello,
///                                                         nonce, code); refused: a frame says why
///
/// Both nonces are in both proofs, so nothing recorded is of use again; the frames that follow
/// carry keys of this connection alone.
namespace hanji::launch {

inline constexpr uint32_t kProtocolVersion = 1;

using Nonce = std::array<std::byte, 32>;

/// The first 256 bytes of a client. Little-endian, every byte covered by the proofs.
struct Hello {
  char magic[8] = {'h', 'a', 'n', 'j', 'i', 'c', 'p', '\0'};
  uint32_t version = kProtocolVersion;
  uint32_t role = 0;        ///< As Role.
  uint32_t index = 0;       ///< Of the rank or the node.
  uint32_t world_size = 0;  ///< 0: a launcher, who does not know it yet.
  uint32_t num_nodes = 1;
  uint32_t resumes = 0;  ///< 1: goes on with the session of the same instance.
  Nonce nonce{};
  std::array<std::byte, 16> instance{};  ///< Drawn once per client.
  char build_id[96] = {};
  char host[80] = {};
};
static_assert(sizeof(Hello) == 256);

/// The server's last fixed words.
struct Answer {
  uint32_t code = 0;  ///< base::Code; kOk: welcome.
  uint32_t reserved = 0;
  base::Digest proof{};
};
static_assert(sizeof(Answer) == 40);

/// The transcript of one handshake, from which proofs and keys follow.
struct Transcript {
  Hello hello;
  Nonce server_nonce{};

  base::Digest client_proof(const Token& token) const;
  base::Digest server_proof(const Token& token, uint32_t code) const;
  /// Of the frames from client to server, and back.
  base::Digest client_key(const Token& token) const;
  base::Digest server_key(const Token& token) const;
};

/// Text in a field of fixed size, cut to fit, and back: printable ASCII only, else '?'.
void put_text(std::string_view text, std::span<char> field);
std::string text_in(std::span<const char> field);

}  // namespace hanji::launch
