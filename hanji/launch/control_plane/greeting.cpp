#include "hanji/launch/control_plane/greeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hanji/base/socket.h"

namespace hanji::launch {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// Exactly these bytes, or none of use.
Status read_all(int socket, std::span<std::byte> bytes, base::Deadline deadline) {
  while (!bytes.empty()) {
    HANJI_RETURN_IF_ERROR(base::wait_readable(socket, deadline));
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (got > 0) bytes = bytes.subspan(static_cast<size_t>(got));
    if (got == 0) return base::peer_lost("the other end closed the connection");
    if (got < 0 && errno != EAGAIN && errno != EINTR) return base::peer_lost(std::strerror(errno));
  }
  return {};
}

template <class T>
Result<T> read_value(int socket, base::Deadline deadline) {
  T value{};
  HANJI_RETURN_IF_ERROR(read_all(socket, std::as_writable_bytes(std::span(&value, 1)), deadline));
  return value;
}

/// The server's words after a code that is not ok.
Status read_refusal(Channel& channel, Code code, base::Deadline deadline) {
  Status received;
  while (true) {
    HANJI_ASSIGN_OR_RETURN(const auto words, channel.next());
    if (words) return Status(code, *words);
    HANJI_RETURN_IF_ERROR(received);
    HANJI_RETURN_IF_ERROR(base::wait_readable(channel.fd(), deadline));
    received = channel.receive();
  }
}

Status wrong_token(const char* what) {
  return base::mismatch(fmt::format("{}; use one token file on all hosts", what));
}

}  // namespace

Result<Channel> greet(base::Fd socket, const Hello& hello, const Token& token,
                      base::Deadline deadline) {
  Transcript transcript{hello, {}};
  HANJI_RETURN_IF_ERROR(base::send_message(socket.get(), bytes_of(hello), {}, deadline));
  HANJI_ASSIGN_OR_RETURN(transcript.server_nonce, read_value<Nonce>(socket.get(), deadline));
  const base::Digest proof = transcript.client_proof(token);
  HANJI_RETURN_IF_ERROR(base::send_message(socket.get(), proof, {}, deadline));
  const auto answer = read_value<Answer>(socket.get(), deadline);
  if (answer.status().code() == Code::kPeerLost) {
    return wrong_token("authentication failed: the server closed the connection at our proof");
  }
  if (!answer.ok()) return answer.status();
  if (!base::equal_secrets(answer->proof, transcript.server_proof(token, answer->code))) {
    return wrong_token("server authentication failed");
  }
  Channel channel(std::move(socket),
                  {.send = transcript.client_key(token), .receive = transcript.server_key(token)});
  if (answer->code == 0) return channel;
  const uint32_t last = static_cast<uint32_t>(Code::kInternal);
  return read_refusal(channel, static_cast<Code>(std::min(answer->code, last)), deadline);
}

Result<Channel> connect_and_greet(const base::HostPort& server, const std::string& source,
                                  const Hello& hello, const Token& token, base::Deadline deadline) {
  HANJI_ASSIGN_OR_RETURN(const auto places, base::resolve(server));
  Status last;
  for (const base::HostPort& place : places) {
    auto socket = base::connect_tcp(place, source, deadline);
    last = socket.status();
    if (!socket.ok()) continue;
    auto channel = greet(*std::move(socket), hello, token, deadline);
    if (channel.ok()) return channel;
    last = channel.status().at(base::to_text(place));
  }
  return last;
}

}  // namespace hanji::launch
