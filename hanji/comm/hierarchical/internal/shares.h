#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "hanji/comm/hierarchical/internal/builder.h"

namespace hanji::comm::hierarchical {

/// How the shares of all ranks travel. The shares of a host's ranks, one after another, are its
/// block; every block is cut into one piece per rail, and the pieces of a rail, by host, are what
/// that rail carries. Where all hosts are alike and all shares equal, a piece is a rank's share.
class Rails {
 public:
  explicit Rails(const Builder& builder);

  /// Elements of the piece of `rail` of a host's block.
  int64_t piece(int rail, int host) const { return pieces_[rail][host]; }
  /// By host: the pieces that a rail carries.
  const std::vector<int64_t>& carried_by(int rail) const { return pieces_[rail]; }
  /// By rail: all that it carries.
  std::vector<int64_t> carried() const;
  /// By rail: the pieces of a host's block.
  std::vector<int64_t> pieces_of(int host) const;
  int64_t block(int host) const { return blocks_[host]; }
  int64_t total() const;
  /// True if each rank's share is the piece of its rail.
  bool direct() const { return direct_; }
  /// Elements of its host's block before the share of `rank`.
  int64_t before(int rank) const { return before_[rank]; }

  /// Pairs ranges of `blocks`, the shares of all ranks by rank, with those of `wide`, what the
  /// rails carry, one after another.
  void pair(
      const std::function<void(int64_t in_blocks, int64_t in_wide, int64_t count)>& tell) const;

 private:
  const Builder& builder_;
  std::vector<std::vector<int64_t>> pieces_;  // by rail, then host
  std::vector<int64_t> blocks_;               // by host
  std::vector<int64_t> before_;               // by rank
  bool direct_;
};

}  // namespace hanji::comm::hierarchical
