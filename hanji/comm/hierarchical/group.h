#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hanji/comm/group.h"

namespace hanji::comm::hierarchical {

/// Connects `members`, ranks of the world of which the caller is one, by an engine between hosts:
/// rank i of the group is members[i]. Called by all of them with the same name, which differs
/// between groups.
using Join = std::function<Group(const std::string& name, const std::vector<int>& members,
                                 GroupOptions options)>;

/// Where the ranks of a new group run.
struct Hosts {
  std::vector<int> host_of;  ///< By rank: any numbers, equal where ranks share a host.
  int rank = 0;              ///< The caller's.
};

/// A group over several hosts: tensors of one host meet in its heap, and each rank exchanges its
/// slice with its rail peers, the ranks of the same place on the other hosts.
///
/// `local`: the ranks of this host, in the order of their ranks, over shared memory. It belongs to
/// the new group, whose heap() is its heap; give it no recorder, for the new group records.
/// Result  every routine, with uneven counts, send and recv, and subgroups; a subgroup within one
///         host is a group over shared memory. tree_all_reduce goes by messages between all ranks,
///         which its first call joins for that: its bits are those of one process.
/// Order   called by every rank. Floating sums: the ranks of each host by pairwise_tree, then the
///         hosts in the order of the engine between them, with Bits::kRun one order per element.
///         For equal hosts of 2^k ranks numbered host by host, floats of 32 and 64 bits have the
///         bits of one host; shorter ones are rounded once more.
/// Cost    all_reduce of N bytes on h hosts: 2N(h-1)/h sent per host, whatever its ranks are. On
///         hosts with different numbers of ranks, as many exchange as the smallest has.
/// Errors  as a group over shared memory, on every rank of every host for calls that differ. A rank
///         that loses its rail peers ends the waiting of all groups of its host.
Group make_group(Group local, const Hosts& hosts, const Join& join, GroupOptions options = {});

}  // namespace hanji::comm::hierarchical
