#include "hanji/base/tcp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <set>

namespace hanji::base {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddressList> look_up(const HostPort& place, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(place.port);
  const int error = ::getaddrinfo(place.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return not_found(
        fmt::format("host '{}': {}; give a name that this host resolves, or a numeric "
                    "address",
                    place.host, ::gai_strerror(error)));
  }
  return AddressList(found, &::freeaddrinfo);
}

Result<HostPort> place_of(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  const int error = ::getnameinfo(address, size, host.data(), host.size(), port.data(), port.size(),
                                  NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) return internal(fmt::format("name of an address: {}", ::gai_strerror(error)));
  HostPort place{host.data(), 0};
  std::from_chars(port.data(), port.data() + std::strlen(port.data()), place.port);
  return place;
}

Result<SocketAddress> numeric(const HostPort& place) {
  HANJI_ASSIGN_OR_RETURN(const AddressList list, look_up(place, AI_NUMERICHOST));
  SocketAddress address;
  std::memcpy(&address.storage, list->ai_addr, list->ai_addrlen);
  address.size = list->ai_addrlen;
  return address;
}

Result<Fd> make_socket(const SocketAddress& address, int type) {
  Fd fd(::socket(address.storage.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return from_errno("socket", errno);
  return fd;
}

void set_flag(int socket, int level, int option) {
  const int on = 1;
  ::setsockopt(socket, level, option, &on, sizeof(on));
}

bool is_unreachable(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == EHOSTUNREACH ||
         error == ENETUNREACH || error == ENETDOWN || error == ECONNABORTED;
}

Status connect_error(const HostPort& place, int error) {
  const std::string what = "connect to " + to_text(place);
  if (error == ETIMEDOUT) return timeout(what + ": no answer");
  if (is_unreachable(error)) return peer_lost(what + ": " + std::strerror(error));
  return from_errno(what, error);
}

Status bind_to(int socket, const std::string& source) {
  HANJI_ASSIGN_OR_RETURN(const SocketAddress own, numeric({source, 0}));
  if (::bind(socket, own.get(), own.size) == 0) return {};
  return invalid_argument(
      fmt::format("connect from {}: {}; give an interface or address of this host", source,
                  std::strerror(errno)));
}

Status wait_connected(int socket, const HostPort& place, Deadline deadline) {
  pollfd poll{socket, POLLOUT, 0};
  while (::poll(&poll, 1, deadline.poll_ms()) <= 0) {
    if (deadline.passed()) return timeout("connect to " + to_text(place) + ": no answer");
  }
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? Status() : connect_error(place, error);
}

bool only_on_link(const sockaddr* address) {
  if (address->sa_family != AF_INET6) return false;
  const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
  return IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

struct InterfaceAddress {
  std::string interface;
  std::string address;
  bool is_ipv4 = false;
};

Result<std::vector<InterfaceAddress>> all_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return from_errno("list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const sockaddr* address = one->ifa_addr;
    if (address == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const bool is_ipv4 = address->sa_family == AF_INET;
    if ((!is_ipv4 && address->sa_family != AF_INET6) || only_on_link(address)) continue;
    const socklen_t size = is_ipv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    HANJI_ASSIGN_OR_RETURN(HostPort place, place_of(address, size));
    all.push_back({one->ifa_name, std::move(place.host), is_ipv4});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& left, const auto& right) {
    return left.is_ipv4 && !right.is_ipv4;
  });
  return all;
}

}  // namespace

std::string to_text(const HostPort& place) {
  const bool six = place.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", six ? "[" : "", place.host, six ? "]" : "", place.port);
}

Result<HostPort> parse_host_port(std::string_view text) {
  const Status bad = invalid_argument(
      fmt::format("'{}' is no HOST:PORT; write node1:29500, 10.0.0.1:29500 or [::1]:29500", text));
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return bad;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != host.npos) {
    return bad;
  }
  HostPort place{std::string(host), -1};
  const char* last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, place.port);
  const bool whole = error == std::errc() && end == last && !digits.empty();
  if (!whole || host.empty() || place.port < 0 || place.port > 65535) return bad;
  return place;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

Result<std::vector<HostPort>> resolve(const HostPort& place) {
  HANJI_ASSIGN_OR_RETURN(const AddressList list, look_up(place, 0));
  std::vector<HostPort> places;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    HANJI_ASSIGN_OR_RETURN(HostPort found, place_of(one->ai_addr, one->ai_addrlen));
    if (std::find(places.begin(), places.end(), found) == places.end()) places.push_back(found);
  }
  return places;
}

Result<std::vector<std::string>> addresses_of_interface(std::string_view name) {
  HANJI_ASSIGN_OR_RETURN(const auto all, all_addresses());
  std::vector<std::string> addresses;
  std::set<std::string> interfaces;
  for (const InterfaceAddress& one : all) {
    interfaces.insert(one.interface);
    if (one.interface == name || one.address == name) addresses.push_back(one.address);
  }
  if (!addresses.empty()) return addresses;
  // 127.0.0.0/8 is ours as a whole, though only 127.0.0.1 is listed.
  if (name.starts_with("127.") && numeric({std::string(name), 0}).ok()) {
    return std::vector{std::string(name)};
  }
  return not_found(fmt::format("no interface or address '{}' is up on this host; there are: {}",
                               name, fmt::join(interfaces, ", ")));
}

Result<std::string> address_towards(const HostPort& place) {
  HANJI_ASSIGN_OR_RETURN(const auto places, resolve(place));
  HANJI_ASSIGN_OR_RETURN(const SocketAddress address, numeric(places.front()));
  HANJI_ASSIGN_OR_RETURN(const Fd fd, make_socket(address, SOCK_DGRAM));
  if (::connect(fd.get(), address.get(), address.size) != 0) return connect_error(place, errno);
  HANJI_ASSIGN_OR_RETURN(HostPort own, local_place(fd.get()));
  return std::move(own.host);
}

Result<Fd> listen_tcp(const HostPort& place) {
  HANJI_ASSIGN_OR_RETURN(const SocketAddress address, numeric(place));
  HANJI_ASSIGN_OR_RETURN(Fd fd, make_socket(address, SOCK_STREAM));
  set_flag(fd.get(), SOL_SOCKET, SO_REUSEADDR);
  if (address.storage.ss_family == AF_INET6) set_flag(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY);
  if (::bind(fd.get(), address.get(), address.size) == 0 && ::listen(fd.get(), SOMAXCONN) == 0) {
    return fd;
  }
  const int error = errno;
  if (error == EADDRINUSE) {
    return invalid_argument("listen at " + to_text(place) +
                            ": the port is taken; choose another one");
  }
  if (error == EADDRNOTAVAIL) {
    return invalid_argument("listen at " + to_text(place) +
                            ": no address of this host; the first host must be the one named, or "
                            "name one of its interfaces");
  }
  return from_errno("listen at " + to_text(place), error);
}

Result<Fd> accept_tcp(int listener) {
  while (true) {
    Fd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) return fd;
    if (errno == EAGAIN) return timeout("accept: nobody waits");
    if (errno != EINTR && errno != ECONNABORTED) return from_errno("accept", errno);
  }
}

Result<Fd> connect_tcp(const HostPort& place, const std::string& source, Deadline deadline) {
  HANJI_ASSIGN_OR_RETURN(const SocketAddress address, numeric(place));
  HANJI_ASSIGN_OR_RETURN(Fd fd, make_socket(address, SOCK_STREAM));
  if (!source.empty()) HANJI_RETURN_IF_ERROR(bind_to(fd.get(), source));
  if (::connect(fd.get(), address.get(), address.size) == 0) return fd;
  if (errno != EINPROGRESS && errno != EINTR) return connect_error(place, errno);
  HANJI_RETURN_IF_ERROR(wait_connected(fd.get(), place, deadline));
  return fd;
}

Result<HostPort> local_place(int socket) {
  SocketAddress address;
  if (::getsockname(socket, address.get(), &address.size) != 0) {
    return from_errno("own address of a socket", errno);
  }
  return place_of(address.get(), address.size);
}

Result<HostPort> peer_place(int socket) {
  SocketAddress address;
  if (::getpeername(socket, address.get(), &address.size) != 0) {
    return errno == ENOTCONN ? peer_lost("the other end is closed")
                             : from_errno("address of the other end", errno);
  }
  return place_of(address.get(), address.size);
}

Status tune_connection(int socket, std::chrono::milliseconds silence) {
  set_flag(socket, IPPROTO_TCP, TCP_NODELAY);
  const auto patience = static_cast<unsigned>(silence.count());
  if (::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience)) != 0) {
    return from_errno("TCP_USER_TIMEOUT", errno);
  }
  return {};
}

}  // namespace hanji::base
