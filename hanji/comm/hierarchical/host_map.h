#pragma once

#include <vector>

namespace hanji::comm::hierarchical {

/// Which ranks of a group share a host. Hosts are numbered by their first rank.
class HostMap {
 public:
  /// `host_of` by rank: any numbers, equal where ranks share a host.
  /// Errors  throws Error(kInvalidArgument) for no rank.
  explicit HostMap(const std::vector<int>& host_of);

  int num_ranks() const { return static_cast<int>(hosts_.size()); }
  int num_hosts() const { return static_cast<int>(ranks_.size()); }
  int host(int rank) const { return hosts_[rank]; }
  /// Index among the ranks of its host.
  int lane(int rank) const { return lanes_[rank]; }
  /// Ranks of a host, by lane.
  const std::vector<int>& ranks(int host) const { return ranks_[host]; }
  /// Ranks per host that exchange with other hosts: as many as the smallest host has.
  int num_lanes() const { return num_lanes_; }
  /// True if every host has as many ranks.
  bool even() const { return even_; }
  /// The ranks of a lane, by host: who exchanges with each other.
  std::vector<int> twins(int lane) const;
  /// For members, ranks of this map in the order of a smaller group.
  HostMap part(const std::vector<int>& members) const;

 private:
  std::vector<int> hosts_;
  std::vector<int> lanes_;
  std::vector<std::vector<int>> ranks_;
  int num_lanes_ = 0;
  bool even_ = true;
};

}  // namespace hanji::comm::hierarchical
