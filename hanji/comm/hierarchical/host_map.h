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
  int rail(int rank) const { return rails_[rank]; }
  /// Ranks of a host, by rail.
  const std::vector<int>& ranks(int host) const { return ranks_[host]; }
  /// Ranks per host that exchange with other hosts: as many as the smallest host has.
  int num_rails() const { return num_rails_; }
  /// True if every host has as many ranks.
  bool even() const { return even_; }
  /// The ranks of a rail, by host: who exchanges with each other.
  std::vector<int> rail_peers(int rail) const;
  /// For members, ranks of this map in the order of a smaller group.
  HostMap part(const std::vector<int>& members) const;

 private:
  std::vector<int> hosts_;
  std::vector<int> rails_;
  std::vector<std::vector<int>> ranks_;
  int num_rails_ = 0;
  bool even_ = true;
};

}  // namespace hanji::comm::hierarchical
