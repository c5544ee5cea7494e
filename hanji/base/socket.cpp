#include "hanji/base/socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

namespace hanji::base {
namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(2);

int type_of(SocketKind kind) {
  return (kind == SocketKind::kSeqpacket ? SOCK_SEQPACKET : SOCK_STREAM) | SOCK_CLOEXEC;
}

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& name = path.native();
  if (name.empty() || name.size() >= sizeof(address.sun_path)) {
    return invalid_argument("socket path '" + name + "': " + std::to_string(name.size()) +
                            " bytes; use 1 to " + std::to_string(sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  return address;
}

Status wait_for(int descriptor, short events, Deadline deadline) {
  while (true) {
    pollfd poll{descriptor, events, 0};
    const int ready = ::poll(&poll, 1, deadline.poll_ms());
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return from_errno("poll", errno);
    if (ready == 0 && deadline.passed()) return timeout("socket: nothing before the deadline");
  }
}

bool is_lost(int error) { return error == EPIPE || error == ECONNRESET || error == ENOTCONN; }

Status socket_error(const char* what, int error) {
  if (is_lost(error)) return peer_lost(std::string(what) + ": the other end is closed");
  return from_errno(what, error);
}

/// Space for the control message that carries descriptors, aligned as cmsghdr asks.
struct ControlBuffer {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> bytes{};
};

void put_descriptors(msghdr& header, ControlBuffer& control, std::span<const int> descriptors) {
  if (descriptors.empty()) return;
  header.msg_control = control.bytes.data();
  header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* part = CMSG_FIRSTHDR(&header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
}

std::vector<Fd> take_descriptors(msghdr& header) {
  std::vector<Fd> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

/// One sendmsg; the bytes taken, 0 if the socket is full.
Result<size_t> send_once(int socket, std::span<const std::byte> bytes,
                         std::span<const int> descriptors) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  ControlBuffer control;
  put_descriptors(header, control, descriptors);
  const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno == EAGAIN || errno == EINTR) return size_t{0};
  return socket_error("send", errno);
}

}  // namespace

Result<std::pair<Fd, Fd>> socket_pair(SocketKind kind) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, type_of(kind), 0, ends) != 0) return from_errno("socketpair", errno);
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

Result<Fd> listen_unix(const std::filesystem::path& path, SocketKind kind) {
  HANJI_ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  Fd fd(::socket(AF_UNIX, type_of(kind), 0));
  if (!fd.valid()) return from_errno("socket", errno);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return from_errno("listen at " + path.string(), errno);
  }
  return fd;
}

Result<Fd> accept_unix(int listener, Deadline deadline) {
  while (true) {
    HANJI_RETURN_IF_ERROR(wait_for(listener, POLLIN, deadline));
    Fd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.valid()) return fd;
    if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) {
      return from_errno("accept", errno);
    }
  }
}

Result<Fd> connect_unix(const std::filesystem::path& path, Deadline deadline, SocketKind kind) {
  HANJI_ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  Fd fd(::socket(AF_UNIX, type_of(kind), 0));
  if (!fd.valid()) return from_errno("socket", errno);
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    if (error == EINTR) continue;
    const bool nobody_yet = error == ENOENT || error == ECONNREFUSED || error == EAGAIN;
    if (!nobody_yet) return from_errno("connect to " + path.string(), error);
    if (deadline.passed()) {
      return timeout("connect to " + path.string() + ": nobody listens (" + std::strerror(error) +
                     ")");
    }
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(kRetryPause, deadline.remaining()));
  }
  return fd;
}

Status send_message(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors,
                    Deadline deadline) {
  if (bytes.empty() || descriptors.size() > kMaxDescriptors) {
    return invalid_argument(
        "send: " + std::to_string(bytes.size()) + " bytes, " + std::to_string(descriptors.size()) +
        " descriptors; send at least 1 and at most " + std::to_string(kMaxDescriptors));
  }
  while (!bytes.empty()) {
    HANJI_ASSIGN_OR_RETURN(const size_t sent, send_once(socket, bytes, descriptors));
    if (sent > 0) {
      bytes = bytes.subspan(sent);
      descriptors = {};
    } else {
      HANJI_RETURN_IF_ERROR(wait_for(socket, POLLOUT, deadline));
    }
  }
  return {};
}

Result<Message> receive_message(int socket, size_t max_bytes, Deadline deadline) {
  Message message;
  message.bytes.resize(max_bytes);
  iovec part{message.bytes.data(), message.bytes.size()};
  ControlBuffer control;
  msghdr header{};
  ssize_t received = -1;
  while (received < 0) {
    HANJI_RETURN_IF_ERROR(wait_for(socket, POLLIN, deadline));
    header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    received = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && errno != EAGAIN && errno != EINTR) return socket_error("receive", errno);
  }
  message.descriptors = take_descriptors(header);
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return corrupt("receive: a message of more than " + std::to_string(max_bytes) +
                   " bytes, or descriptors lost; both ends must be of one build");
  }
  if (received == 0) return peer_lost("receive: the other end is closed");
  message.bytes.resize(static_cast<size_t>(received));
  return message;
}

Status wait_readable(int descriptor, Deadline deadline) {
  return wait_for(descriptor, POLLIN, deadline);
}

Result<Credentials> peer_credentials(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return from_errno("peer credentials", errno);
  }
  return Credentials{peer.pid, peer.uid, peer.gid};
}

}  // namespace hanji::base
