#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "hanji/comm/hierarchical/internal/program.h"
#include "hanji/layout/range.h"

namespace hanji::comm::hierarchical {

/// Adds the stages of one rank to a program, leaving out those that would move nothing.
class Builder {
 public:
  Builder(const Shape& shape, const HostMap& hosts, int rank);

  const Shape& shape() const { return shape_; }
  const HostMap& hosts() const { return hosts_; }
  int rank() const { return rank_; }
  int host() const { return host_; }
  int rail() const { return rail_; }
  int num_rails() const { return hosts_.num_rails(); }
  const std::vector<int>& neighbours() const { return hosts_.ranks(host_); }
  bool carries() const { return rail_ < hosts_.num_rails(); }
  bool at_root_host() const { return host_ == hosts_.host(shape_.root); }
  /// kSum where the average is taken at the end.
  schedule::ReduceOp op() const;
  /// The share of `rank`, of a routine with a share per rank.
  int64_t share(int rank) const;

  /// A collective of this host; counts by rail, those past their end are 0.
  int local(schedule::Routine routine, Piece from, Piece to, std::vector<int64_t> counts,
            int after);
  /// A collective of the rail peers; counts by host. Nothing on a rank that has none.
  int cross(schedule::Routine routine, Piece from, Piece to, std::vector<int64_t> counts,
            int after);
  /// The call as it is, of all ranks by messages.
  int everybody();
  /// The average of what was summed, if that is the op.
  int divide(Piece piece, int after);
  int move(std::vector<Move> moves, int after);

  Program program;

 private:
  int add(Stage stage);
  void set_counts(Stage& stage, std::vector<int64_t> counts) const;

  const Shape& shape_;
  const HostMap& hosts_;
  int rank_;
  int host_;
  int rail_;
};

/// Slice `index` of [0, count) cut into `parts`, whose sizes differ by one at most.
layout::Range slice(int64_t count, int parts, int index);
std::vector<int64_t> slice_sizes(int64_t count, int parts);

inline int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// The programs of program.cpp's routines.
void add_chunked(Builder& builder);  // all_reduce, broadcast, reduce
void add_shares(Builder& builder);   // all_gather, gather, scatter, reduce_scatter
void add_all_to_all(Builder& builder);

}  // namespace hanji::comm::hierarchical
