#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "hanji/base/log.h"
#include "hanji/base/version.h"
#include "hanji/launch/control_plane/server.h"
#include "hanji/launch/hosts.h"
#include "hanji/launch/internal/hosts_file.h"
#include "hanji/launch/internal/node_list.h"
#include "hanji/launch/internal/verdict.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;

/// Rank 0 serves until the others have left; one that hangs is lost before this.
constexpr auto kDrainTime = 60s;

Result<Token> token_of(const Lookup& lookup) {
  const std::string path = lookup(base::Variable::kHanjiTokenFile).value_or("");
  if (!path.empty()) return read_token_file(path);
  return base::invalid_argument(
      "ranks of several hosts prove to each other that they belong together: make a secret file on "
      "a file system that all hosts share, (umask 077; openssl rand -hex 32 > FILE), and set "
      "HANJI_TOKEN_FILE=FILE on all ranks");
}

/// Calls `on_lost` at most once, whatever comes first.
OnHostLost once(OnHostLost on_lost) {
  auto called = std::make_shared<std::atomic<bool>>(false);
  return [called, on_lost = std::move(on_lost)](const Status& why) {
    if (!called->exchange(true) && on_lost) on_lost(why);
  };
}

void judge_lost_rank(Server& server, const LostClient& lost) {
  const Verdict verdict{-1, 6,
                        fmt::format("rank {} (host {}, {}) is lost: {}", lost.index, lost.host,
                                    lost.address, lost.why.message())};
  server.set_if_absent(kVerdictKey, to_json(verdict));
}

/// Listens at the first address of the rendezvous, or of the interface, that is one of ours.
Result<std::shared_ptr<Server>> serve(const base::HostPort& rendezvous, ServerOptions options,
                                      const std::string& interface) {
  HANJI_ASSIGN_OR_RETURN(auto places, base::resolve(rendezvous));
  if (!interface.empty()) {
    HANJI_ASSIGN_OR_RETURN(const std::string own, address_of(interface, places.front().host));
    places = {{own, rendezvous.port}};
  }
  options.on_lost = judge_lost_rank;
  options.on_refused = [](const std::string& text) {
    base::Log(STDERR_FILENO, "rank 0").warn(text);
  };
  Status last;
  for (const base::HostPort& place : places) {
    options.place = place;
    auto server = Server::start(options);
    if (server.ok()) {
      return std::shared_ptr<Server>(server->release(), [](Server* served) {
        static_cast<void>(served->drain(base::Deadline::after(kDrainTime)));
        delete served;
      });
    }
    last = server.status();
  }
  return last.at("rank 0 serves the other hosts (HANJI_RENDEZVOUS sets where)");
}

std::string host_key(int first_rank) { return fmt::format("hanji/node/{}", first_rank); }

/// From rank 0 on, each host's first rank told how many follow it there.
Result<std::vector<Node>> read_nodes(Store& store, int world_size) {
  std::vector<Node> nodes;
  for (int next = 0; next < world_size; next += nodes.back().num_ranks) {
    const auto text = store.get(host_key(next), base::Deadline::after(0s));
    if (text.status().code() == Code::kTimeout) {
      return base::unsupported(fmt::format(
          "rank {} is not the first of its host, though rank {} is the last of the one before: "
          "ranks must be numbered host by host (mpirun --map-by slot, srun --distribution=block)",
          next, next - 1));
    }
    if (!text.ok()) return text.status();
    HANJI_ASSIGN_OR_RETURN(Node node, parse_node(*text));
    nodes.push_back(std::move(node));
  }
  return nodes;
}

Result<Hosts> meet_at(const Identity& identity, Hosts hosts, base::Deadline deadline) {
  Store& store = *hosts.store;
  const int first = identity.rank - identity.local_rank;
  if (identity.local_rank == 0) {
    const Node own{base::host_name(), store.local_address(), first, identity.local_size};
    HANJI_RETURN_IF_ERROR(store.set(host_key(first), to_json(own)));
  }
  HANJI_RETURN_IF_ERROR(store.barrier("hanji/ranks", identity.rank, identity.world_size, deadline));
  HANJI_ASSIGN_OR_RETURN(hosts.nodes, read_nodes(store, identity.world_size));
  hosts.node = hosts.node_of(identity.rank);
  return hosts;
}

}  // namespace

Result<Hosts> meet_hosts(const Identity& identity, base::Deadline deadline, OnHostLost on_lost,
                         const Lookup& lookup) {
  Hosts hosts;
  hosts.rank = identity.rank;
  hosts.world_size = identity.world_size;
  hosts.local_rank = identity.local_rank;
  if (identity.local_size == identity.world_size) {
    hosts.nodes = {{base::host_name(), "", 0, identity.world_size}};
    return hosts;
  }
  HANJI_ASSIGN_OR_RETURN(const base::HostPort rendezvous, rendezvous_of(identity, lookup));
  HANJI_ASSIGN_OR_RETURN(const Token token, token_of(lookup));
  const std::string interface = lookup(base::Variable::kHanjiInterface).value_or("");
  StoreOptions options;
  options.server = rendezvous;
  options.token = token;
  options.index = identity.rank;
  options.world_size = identity.world_size;
  options.num_nodes = 0;  // Nobody tells a rank; read_nodes() finds out.
  options.build_id = base::build_id();
  options.deadline = deadline;
  if (identity.rank == 0) {
    ServerOptions served;
    served.token = token;
    served.num_nodes = 0;
    served.world_size = identity.world_size;
    HANJI_ASSIGN_OR_RETURN(hosts.server, serve(rendezvous, std::move(served), interface));
    options.server = hosts.server->place();
  } else if (!interface.empty()) {
    HANJI_ASSIGN_OR_RETURN(const auto places, base::resolve(rendezvous));
    HANJI_ASSIGN_OR_RETURN(options.source, address_of(interface, places.front().host));
  }
  const OnHostLost lost = once(std::move(on_lost));
  options.on_lost = [lost, host = rendezvous.host](const Status& why) {
    lost(base::peer_lost(fmt::format("rank 0 (host {}) is lost: {}", host, why.message())));
  };
  HANJI_ASSIGN_OR_RETURN(hosts.store, Store::connect(std::move(options)));
  hosts.store->watch(kVerdictKey, [lost](const std::string& json) {
    const auto verdict = parse_verdict(json);
    lost(base::peer_lost(verdict.ok() ? verdict->text : verdict.status().message()));
  });
  hosts.notifies_failures = true;
  return meet_at(identity, std::move(hosts), deadline);
}

}  // namespace hanji::launch
