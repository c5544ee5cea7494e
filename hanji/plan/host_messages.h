#pragma once

#include <cstdint>
#include <vector>

#include "hanji/plan/network.h"

namespace hanji::plan {

/// How messages of every rank to every other travel between hosts, as comm/hierarchical moves them: to the
/// rail of their host that carries what is for the receiver's rail, across, and where hosts have different
/// numbers of ranks from there to the receiver.
class HostMessages {
 public:
  /// `counts`: elements by sender and receiver; one: between any two.
  HostMessages(const HostLayout& hosts, const std::vector<int64_t>& counts);

  /// Elements that pass from one host to another, all together.
  int64_t between_hosts() const;
  /// Of the host that sends or receives most of them.
  int64_t busiest() const;
  /// Elements that ranks of one host give each other on the way.
  int64_t within_hosts() const;
  /// Of all ranks, those of a host among themselves too.
  int64_t total() const { return given(all_, all_); }
  /// Elements of each of the two buffers in which `rank` puts them in order.
  int64_t staged(int rank) const;

 private:
  using Ranks = std::vector<int>;

  int64_t given(const Ranks& from, const Ranks& to) const;
  /// Ranks of `host` whose messages the rail `rail` carries, and those of all hosts.
  Ranks carried(int host, int rail) const;
  Ranks carried(int rail) const;

  std::vector<Ranks> hosts_;
  Ranks all_;
  std::vector<int64_t> counts_;
  int rails_ = 1;
  bool even_ = true;
};

}  // namespace hanji::plan
