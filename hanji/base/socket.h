#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/base/fd.h"

namespace hanji::base {

/// Unix sockets between processes of one host. Every descriptor made here is closed on exec.
enum class SocketKind { kSeqpacket, kStream };

/// Two connected ends.
Result<std::pair<Fd, Fd>> socket_pair(SocketKind kind = SocketKind::kSeqpacket);

/// Listens at `path`, which must not exist and whose folder decides who may connect.
/// Errors  kInvalidArgument if the path is longer than the 107 bytes a socket address holds.
Result<Fd> listen_unix(const std::filesystem::path& path, SocketKind kind = SocketKind::kSeqpacket);
/// The next connection. Errors: kTimeout.
Result<Fd> accept_unix(int listener, Deadline deadline);
/// Connects, trying again until `deadline` while nobody listens there yet; tries at least once.
/// Errors  kTimeout.
Result<Fd> connect_unix(const std::filesystem::path& path, Deadline deadline,
                        SocketKind kind = SocketKind::kSeqpacket);

inline constexpr size_t kMaxDescriptors = 253;  ///< SCM_MAX_FD: per message.

/// What one receive gave.
struct Message {
  std::vector<std::byte> bytes;
  std::vector<Fd> descriptors;
};

/// Sends `bytes` (at least one), with copies of `descriptors`; on a seqpacket socket one message.
/// Errors  kPeerLost if the other end is closed; kTimeout if it does not take them in time.
Status send_message(int socket, std::span<const std::byte> bytes,
                    std::span<const int> descriptors = {},
                    Deadline deadline = Deadline::after(std::chrono::seconds(60)));

/// Receives one message of at most `max_bytes`; on a stream, what has arrived.
/// Errors  kPeerLost if the other end is closed; kTimeout; kCorrupt if the message is longer than
///         `max_bytes` or lost descriptors on the way (all that came are closed then).
Result<Message> receive_message(int socket, size_t max_bytes, Deadline deadline);

/// Waits until the socket has something to read, or its other end is closed. Errors: kTimeout.
Status wait_readable(int descriptor, Deadline deadline);

struct Credentials {
  pid_t pid = -1;
  uid_t uid = 0;
  gid_t gid = 0;
};

/// Who connected, by the kernel's word (SO_PEERCRED).
Result<Credentials> peer_credentials(int socket);

}  // namespace hanji::base
