#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/base/fd.h"

namespace hanji::base {

/// Where a TCP socket is: a name or a numeric IPv4 or IPv6 address, and a port.
struct HostPort {
  std::string host;
  int port = 0;

  bool operator==(const HostPort&) const = default;
};

/// "node1:29500", "[::1]:29500".
std::string to_text(const HostPort& place);
/// Errors  kInvalidArgument for anything else; an IPv6 address needs its brackets.
Result<HostPort> parse_host_port(std::string_view text);

/// This host's own name; "localhost" if the system tells none.
std::string host_name();

/// Every numeric address of a name, in the system's order of preference.
/// Errors  kNotFound if there is none.
Result<std::vector<HostPort>> resolve(const HostPort& place);

/// Numeric addresses of the network interface `name` ("eth0"), or `name` itself if it is an address
/// of this host. IPv4 first, none that is only valid on a link.
/// Errors  kNotFound, with the interfaces there are.
Result<std::vector<std::string>> addresses_of_interface(std::string_view name);

/// The own address from which packets to `place` leave. Sends nothing.
Result<std::string> address_towards(const HostPort& place);

/// Listens at exactly this numeric address; port 0 takes a free one. Closed on exec, non-blocking.
/// Errors  kInvalidArgument if the port is taken or the address is none of this host.
Result<Fd> listen_tcp(const HostPort& place);
/// The next connection, non-blocking. Errors: kTimeout if none waits.
Result<Fd> accept_tcp(int listener);
/// Connects once to a numeric address, from `source` unless that is empty. Non-blocking after.
/// Errors  kTimeout if the other side is silent; kPeerLost if nobody listens there or no route
///         leads there; kInvalidArgument if `source` is none of ours.
Result<Fd> connect_tcp(const HostPort& place, const std::string& source, Deadline deadline);

/// Both numeric. Errors: kPeerLost if not connected.
Result<HostPort> local_place(int socket);
Result<HostPort> peer_place(int socket);

/// Sends small messages at once, and gives the connection up when sent bytes stay unacknowledged
/// for `silence`.
Status tune_connection(int socket, std::chrono::milliseconds silence);

}  // namespace hanji::base
