#include "hanji/launch/internal/node_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/checksum.h"
#include "hanji/launch/internal/announcement.h"

namespace hanji::launch {
namespace {

using base::Variable;

constexpr int kFirstNodePort = 20'000;
constexpr int kNumNodePorts = 10'000;

std::string text_of(const Lookup& lookup, Variable variable) {
  return lookup(variable).value_or("");
}

/// Jobs of one host at one time rarely meet in it, and HANJI_RENDEZVOUS parts those that do.
int port_of(const std::string& job_id) {
  return kFirstNodePort +
         static_cast<int>(base::xxh3(std::as_bytes(std::span(job_id))) % kNumNodePorts);
}

Result<base::HostPort> torchrun_rendezvous(const Lookup& lookup) {
  const std::string host = text_of(lookup, Variable::kMasterAddr);
  const auto port = parse_integer(text_of(lookup, Variable::kMasterPort));
  if (!host.empty() && port && *port > 0 && *port < 65535) return base::HostPort{host, *port + 1};
  return base::invalid_argument(
      fmt::format("MASTER_ADDR='{}' MASTER_PORT='{}' tell no place where the hosts could meet; set "
                  "HANJI_RENDEZVOUS=HOST:PORT to a free port of rank 0's host on all ranks",
                  host, text_of(lookup, Variable::kMasterPort)));
}

}  // namespace

int number_ranks(std::vector<Node>& nodes) {
  int next = 0;
  for (Node& node : nodes) {
    node.first_rank = next;
    next += node.num_ranks;
  }
  return next;
}

std::string first_host(std::string_view list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t close = list.find(']', i);
    const std::string_view inside = list.substr(i + 1, close - i - 1);
    host += inside.substr(0, inside.find_first_of(",-"));
    if (close == list.npos) break;
    i = close;
  }
  return host;
}

Result<base::HostPort> rendezvous_of(const Identity& identity, const Lookup& lookup) {
  const std::string told = text_of(lookup, Variable::kHanjiRendezvous);
  if (!told.empty()) {
    auto place = base::parse_host_port(told);
    return place.ok() ? std::move(place) : place.status().at("HANJI_RENDEZVOUS");
  }
  if (identity.source == Source::kTorchrun) return torchrun_rendezvous(lookup);
  // The step that mpirun starts on other hosts does not contain its own.
  std::string hosts;
  if (identity.source == Source::kSrun) hosts = text_of(lookup, Variable::kSlurmStepNodeList);
  if (hosts.empty()) hosts = text_of(lookup, Variable::kSlurmNodeList);
  if (!hosts.empty()) return base::HostPort{first_host(hosts), port_of(identity.job_id)};
  return base::invalid_argument(fmt::format(
      "{} does not tell its ranks where rank 0 runs; set HANJI_RENDEZVOUS=HOST:PORT to a free port "
      "of rank 0's host on all ranks (mpirun -x HANJI_RENDEZVOUS=...)",
      name_of(identity.source)));
}

Result<std::string> address_of(const std::string& interface, const std::string& like) {
  HANJI_ASSIGN_OR_RETURN(const auto addresses, base::addresses_of_interface(interface));
  const auto is_six = [](const std::string& address) { return address.find(':') != address.npos; };
  const auto same = std::find_if(addresses.begin(), addresses.end(), [&](const auto& address) {
    return is_six(address) == is_six(like);
  });
  return same == addresses.end() ? addresses.front() : *same;
}

}  // namespace hanji::launch
