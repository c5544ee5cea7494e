#pragma once

#include <string>

#include "hanji/base/clock.h"
#include "hanji/base/tcp.h"
#include "hanji/launch/control_plane/channel.h"
#include "hanji/launch/control_plane/handshake.h"

namespace hanji::launch {

/// The client's side of the handshake on a fresh connection.
///
/// Result  a channel on which frames may be sent at once.
/// Errors  kPeerLost, kTimeout: try again; kMismatch if one side does not know the token; else
///         what the server refused this client with.
Result<Channel> greet(base::Fd socket, const Hello& hello, const Token& token,
                      base::Deadline deadline);

/// Connects to any address of `server` and greets it.
Result<Channel> connect_and_greet(const base::HostPort& server, const std::string& source,
                                  const Hello& hello, const Token& token, base::Deadline deadline);

}  // namespace hanji::launch
