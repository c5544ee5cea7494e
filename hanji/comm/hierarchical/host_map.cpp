#include "hanji/comm/hierarchical/host_map.h"

#include <algorithm>
#include <map>

#include "hanji/base/status.h"

namespace hanji::comm::hierarchical {

HostMap::HostMap(const std::vector<int>& host_of) {
  if (host_of.empty()) throw Error(base::invalid_argument("hosts: a group has at least one rank"));
  std::map<int, int> number;
  for (size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto [found, is_new] = number.try_emplace(host_of[rank], static_cast<int>(number.size()));
    if (is_new) ranks_.emplace_back();
    std::vector<int>& ranks = ranks_[found->second];
    hosts_.push_back(found->second);
    rails_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(rank));
  }
  const auto [least, most] =
      std::ranges::minmax(ranks_, {}, [](const std::vector<int>& ranks) { return ranks.size(); });
  num_rails_ = static_cast<int>(least.size());
  even_ = least.size() == most.size();
}

std::vector<int> HostMap::rail_peers(int rail) const {
  std::vector<int> found;
  for (const std::vector<int>& ranks : ranks_) found.push_back(ranks[rail]);
  return found;
}

HostMap HostMap::part(const std::vector<int>& members) const {
  std::vector<int> host_of;
  for (const int rank : members) host_of.push_back(host(rank));
  return HostMap(host_of);
}

}  // namespace hanji::comm::hierarchical
