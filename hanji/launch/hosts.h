#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/launch/environment.h"
#include "hanji/launch/inherited.h"
#include "hanji/launch/store.h"

namespace hanji::launch {

class Server;

/// One host of a run. Ranks are numbered host by host.
struct Node {
  std::string name;     ///< Its host name.
  std::string address;  ///< Of the interface that the hosts reach each other by, without a port.
  int first_rank = 0;
  int num_ranks = 1;

  bool operator==(const Node&) const = default;
};

/// This rank among the ranks of all hosts; shm::Endpoints holds its place on its own host.
struct Hosts {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int node = 0;
  std::vector<Node> nodes = {Node{}};
  std::shared_ptr<Server> server;  ///< On rank 0 where no launcher of ours serves.
  std::shared_ptr<Store> store;    ///< Null on one host. Keep it while the job lives.
  bool notifies_failures = false;  ///< No launcher of ours does it: see notify_hosts().

  int num_nodes() const { return static_cast<int>(nodes.size()); }
  const Node& here() const { return nodes[static_cast<size_t>(node)]; }
  /// Of any rank.
  int node_of(int any_rank) const;
};

/// What is to end the waits of this rank when a host is lost: called once, from a thread of the
/// store, with one line that says who, where and why. Must not block.
using OnHostLost = std::function<void(const Status&)>;

/// Under `hanji run`: connects to the store that the launcher of node 0 serves. On one host nothing
/// is connected. When a host is lost, the launcher here ends the ranks' waits (Segment::abort).
///
/// Errors  kPeerLost, kTimeout, kMismatch as Store::connect().
Result<Hosts> join_hosts(const Inherited& inherited, base::Deadline deadline);

/// Under torchrun, mpirun or srun on several hosts: rank 0 serves the store at the rendezvous
/// address, all connect to it. Where that is: HANJI_RENDEZVOUS; else for torchrun MASTER_ADDR and
/// the port after MASTER_PORT, for srun the first host of the step and a port made of the job's id.
///
/// Result  on one host nothing is connected.
/// Errors  kInvalidArgument without a rendezvous or a token (HANJI_TOKEN_FILE), with the way out;
///         kTimeout naming the ranks that did not come; kMismatch as Store::connect().
Result<Hosts> meet_hosts(const Identity& identity, base::Deadline deadline, OnHostLost on_lost = {},
                         const Lookup& lookup = base::read);

/// Tells all other hosts why the job ends, in a line that names the rank; the first to tell is the verdict.
/// Does nothing on one host, nor under `hanji run`, whose launchers tell how ranks ended.
void notify_hosts(const Hosts& hosts, const std::string& verdict);

/// The same, but does not wait until it is told.
void propose_to_hosts(const Hosts& hosts, const std::string& verdict);

}  // namespace hanji::launch
