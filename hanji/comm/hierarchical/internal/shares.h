#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "hanji/comm/hierarchical/internal/builder.h"

namespace hanji::comm::hierarchical {

/// How the shares of all ranks travel. The shares of a host's ranks, one after another, are its
/// block; every block is cut into one piece per lane, and the pieces of a lane, by host, are what
/// that lane carries. Where all hosts are alike and all shares equal, a piece is a rank's share.
class Lanes {
 public:
  explicit Lanes(const Builder& builder);

  /// Elements of the piece of `lane` of a host's block.
  int64_t piece(int lane, int host) const { return pieces_[lane][host]; }
  /// By host: the pieces that a lane carries.
  const std::vector<int64_t>& carried_by(int lane) const { return pieces_[lane]; }
  /// By lane: all that it carries.
  std::vector<int64_t> carried() const;
  /// By lane: the pieces of a host's block.
  std::vector<int64_t> pieces_of(int host) const;
  int64_t block(int host) const { return blocks_[host]; }
  int64_t total() const;
  /// True if each rank's share is the piece of its lane.
  bool direct() const { return direct_; }
  /// Elements of its host's block before the share of `rank`.
  int64_t before(int rank) const { return before_[rank]; }

  /// Pairs ranges of `blocks`, the shares of all ranks by rank, with those of `wide`, what the
  /// lanes carry, one after another.
  void pair(
      const std::function<void(int64_t in_blocks, int64_t in_wide, int64_t count)>& tell) const;

 private:
  const Builder& builder_;
  std::vector<std::vector<int64_t>> pieces_;  // by lane, then host
  std::vector<int64_t> blocks_;               // by host
  std::vector<int64_t> before_;               // by rank
  bool direct_;
};

}  // namespace hanji::comm::hierarchical
