#include "hanji/plan/host_messages.h"

#include <algorithm>

namespace hanji::plan {

HostMessages::HostMessages(const HostLayout& hosts, const std::vector<int64_t>& counts)
    : counts_(counts), rails_(*std::ranges::min_element(hosts.ranks)) {
  even_ = rails_ == *std::ranges::max_element(hosts.ranks);
  for (const int ranks : hosts.ranks) {
    Ranks& here = hosts_.emplace_back();
    for (int rail = 0; rail < ranks; ++rail) {
      here.push_back(static_cast<int>(all_.size()));
      all_.push_back(here.back());
    }
  }
  if (counts.size() == 1) counts_.assign(all_.size() * all_.size(), counts[0]);
}

int64_t HostMessages::given(const Ranks& from, const Ranks& to) const {
  int64_t sum = 0;
  for (const int sender : from) {
    for (const int receiver : to) sum += counts_[sender * all_.size() + receiver];
  }
  return sum;
}

HostMessages::Ranks HostMessages::carried(int host, int rail) const {
  Ranks found;
  for (int place = rail; place < std::ssize(hosts_[host]); place += rails_) {
    found.push_back(hosts_[host][place]);
  }
  return found;
}

HostMessages::Ranks HostMessages::carried(int rail) const {
  Ranks found;
  for (int host = 0; host < std::ssize(hosts_); ++host) {
    const Ranks here = carried(host, rail);
    found.insert(found.end(), here.begin(), here.end());
  }
  return found;
}

int64_t HostMessages::between_hosts() const {
  int64_t sum = total();
  for (const Ranks& host : hosts_) sum -= given(host, host);
  return sum;
}

int64_t HostMessages::busiest() const {
  int64_t most = 0;
  for (const Ranks& host : hosts_) {
    const int64_t own = given(host, host);
    most = std::max({most, given(host, all_) - own, given(all_, host) - own});
  }
  return most;
}

int64_t HostMessages::within_hosts() const {
  int64_t sum = 0;
  for (const Ranks& host : hosts_) {
    for (int place = 0; place < std::ssize(host); ++place) {
      for (int rail = 0; rail < rails_; ++rail) {
        if (rail != place) sum += given({host[place]}, carried(rail));
      }
      if (place >= rails_) sum += given(all_, {host[place]});
    }
  }
  return sum;
}

int64_t HostMessages::staged(int rank) const {
  const auto host = std::ranges::find_if(
      hosts_, [rank](const Ranks& ranks) { return std::ranges::count(ranks, rank) > 0; });
  const auto rail = static_cast<int>(std::ranges::find(*host, rank) - host->begin());
  const bool carries = rail < rails_;
  int64_t most = given({rank}, all_);  // all that it sends, by rail
  if (carries) {
    // What its host gives it to carry, what comes for the ranks that it serves,
    const Ranks served = carried(static_cast<int>(host - hosts_.begin()), rail);
    most = std::max({most, given(*host, carried(rail)), given(all_, served)});
  }
  // and what it gets of the one that serves it.
  return even_ ? most : std::max(most, given(all_, {rank}));
}

}  // namespace hanji::plan
