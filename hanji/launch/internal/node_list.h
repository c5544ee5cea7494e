#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/tcp.h"
#include "hanji/launch/environment.h"
#include "hanji/launch/hosts.h"

namespace hanji::launch {

/// Numbers the ranks host by host; gives how many there are.
int number_ranks(std::vector<Node>& nodes);

/// The first host in Slurm's notation: "gpu07" of "gpu[07-09,12],login".
std::string first_host(std::string_view list);

/// Where ranks that a foreign launcher started on several hosts meet.
/// Errors  kInvalidArgument if nothing tells; names HANJI_RENDEZVOUS as the way out.
Result<base::HostPort> rendezvous_of(const Identity& identity, const Lookup& lookup);

/// The address of `interface` in the family of `like`; the only one there is otherwise.
Result<std::string> address_of(const std::string& interface, const std::string& like);

}  // namespace hanji::launch
