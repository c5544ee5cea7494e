#include "hanji/comm/hierarchical/internal/shares.h"

#include <algorithm>

namespace hanji::comm::hierarchical {
namespace {

using schedule::Routine;

bool all_shares_equal(const std::vector<int64_t>& counts) {
  return std::ranges::all_of(counts, [&](int64_t count) { return count == counts[0]; });
}

}  // namespace

Rails::Rails(const Builder& b)
    : builder_(b),
      blocks_(b.hosts().num_hosts()),
      before_(b.hosts().num_ranks()),
      direct_(b.hosts().even() && all_shares_equal(b.shape().counts)) {
  for (int host = 0; host < b.hosts().num_hosts(); ++host) {
    for (const int rank : b.hosts().ranks(host)) {
      before_[rank] = blocks_[host];
      blocks_[host] += b.share(rank);
    }
  }
  for (int rail = 0; rail < b.num_rails(); ++rail) {
    std::vector<int64_t>& pieces = pieces_.emplace_back();
    for (const int64_t block : blocks_) {
      pieces.push_back(slice(block, b.num_rails(), rail).size());
    }
  }
}

std::vector<int64_t> Rails::carried() const {
  std::vector<int64_t> sums;
  for (const auto& pieces : pieces_) sums.push_back(sum(pieces));
  return sums;
}

std::vector<int64_t> Rails::pieces_of(int host) const {
  std::vector<int64_t> found;
  for (const auto& pieces : pieces_) found.push_back(pieces[host]);
  return found;
}

int64_t Rails::total() const { return sum(blocks_); }

void Rails::pair(
    const std::function<void(int64_t in_blocks, int64_t in_wide, int64_t count)>& visit) const {
  const HostMap& hosts = builder_.hosts();
  std::vector<int64_t> starts;  // of each rank's share among all
  int64_t start = 0;
  for (int rank = 0; rank < hosts.num_ranks(); ++rank) {
    starts.push_back(start);
    start += builder_.share(rank);
  }
  int64_t in_wide = 0;
  for (int rail = 0; rail < builder_.num_rails(); ++rail) {
    for (int host = 0; host < hosts.num_hosts(); ++host) {
      const layout::Range piece = slice(blocks_[host], builder_.num_rails(), rail);
      for (const int rank : hosts.ranks(host)) {
        const int64_t begin = std::max(piece.begin, before_[rank]);
        const int64_t end = std::min(piece.end, before_[rank] + builder_.share(rank));
        if (begin >= end) continue;
        visit(starts[rank] + begin - before_[rank], in_wide + begin - piece.begin, end - begin);
      }
      in_wide += piece.size();
    }
  }
}

namespace {

/// The whole call of a routine with shares, on one rank.
class Shares {
 public:
  explicit Shares(Builder& b) : b_(b), rails_(b), mine_{Buffer::kInput, 0, b.share(b.rank())} {
    b_.program.wide = rails_.total();
    if (b_.carries()) carried_ = {Buffer::kRail, 0, sum(rails_.carried_by(b_.rail()))};
    b_.program.rail = carried_.count;
  }

  void add() {
    switch (b_.shape().routine) {
      case Routine::kAllGather: return add_gathering(Routine::kAllGather);
      case Routine::kGather: return add_gathering(Routine::kGather);
      case Routine::kScatter: return add_spreading(Routine::kScatter);
      default: return add_spreading(Routine::kReduceScatter);
    }
  }

 private:
  bool gets_all() const {
    return b_.shape().routine == Routine::kAllGather || b_.rank() == b_.shape().root;
  }

  std::vector<int64_t> shares_here() const {
    std::vector<int64_t> shares;
    for (const int rank : b_.neighbours()) shares.push_back(b_.share(rank));
    return shares;
  }

  /// This rank's piece of its host's block: where it lies in the block.
  Piece piece_in_block(Buffer buffer) const {
    if (!b_.carries()) return {buffer, 0, 0};
    const layout::Range range = slice(rails_.block(b_.host()), b_.num_rails(), b_.rail());
    return {buffer, range.begin, range.size()};
  }

  std::vector<int64_t> hosts_of_rail() const {
    return b_.carries() ? rails_.carried_by(b_.rail()) : std::vector<int64_t>();
  }

  Piece block() const { return {Buffer::kPiece, 0, rails_.block(b_.host())}; }
  Piece wide() const { return {Buffer::kWide, 0, rails_.total()}; }

  /// Shares to who wants them: put together on this host, exchanged, put together again.
  void add_gathering(Routine routine) {
    Piece piece = mine_;
    int after = -1;
    if (!rails_.direct()) {
      b_.program.piece = rails_.block(b_.host());
      after = b_.local(Routine::kAllGather, mine_, block(), shares_here(), after);
      piece = piece_in_block(Buffer::kPiece);
    }
    const bool everybody = routine == Routine::kAllGather;
    const bool here = everybody || b_.at_root_host();
    after = b_.cross(routine, piece, here ? carried_ : Piece{}, hosts_of_rail(), after);
    if (!here) return;
    after = b_.local(routine, carried_, gets_all() ? wide() : Piece{}, rails_.carried(), after);
    if (!gets_all()) return;
    std::vector<Move> moves;
    rails_.pair([&](int64_t in_blocks, int64_t in_wide, int64_t count) {
      moves.push_back({{Buffer::kWide, in_wide, count}, {Buffer::kOutput, in_blocks, count}});
    });
    b_.move(std::move(moves), after);
  }

  /// The other way: put in the order of rails, spread or summed here, then between hosts.
  void add_spreading(Routine routine) {
    const bool scatters = routine == Routine::kScatter;
    const bool gives = !scatters || b_.rank() == b_.shape().root;
    int after = -1;
    if (gives) after = add_ordering();
    if (!scatters || b_.at_root_host()) {
      after = b_.local(routine, gives ? wide() : Piece{}, carried_, rails_.carried(), after);
    }
    const bool here = !scatters || b_.at_root_host();
    Piece piece{Buffer::kOutput, 0, b_.share(b_.rank())};
    if (!rails_.direct()) {
      b_.program.piece = rails_.block(b_.host());
      piece = piece_in_block(Buffer::kPiece);
    }
    after = b_.cross(routine, here ? carried_ : Piece{}, piece, hosts_of_rail(), after);
    if (!scatters) after = b_.divide(piece, after);
    if (rails_.direct()) return;
    after = b_.local(Routine::kAllGather, piece, block(), rails_.pieces_of(b_.host()), after);
    const int64_t share = b_.share(b_.rank());
    b_.move({{{Buffer::kPiece, rails_.before(b_.rank()), share}, {Buffer::kOutput, 0, share}}},
            after);
  }

  int add_ordering() {
    std::vector<Move> moves;
    rails_.pair([&](int64_t in_blocks, int64_t in_wide, int64_t count) {
      moves.push_back({{Buffer::kInput, in_blocks, count}, {Buffer::kWide, in_wide, count}});
    });
    return b_.move(std::move(moves), -1);
  }

  Builder& b_;
  const Rails rails_;
  const Piece mine_;
  Piece carried_{Buffer::kRail, 0, 0};
};

}  // namespace

void add_shares(Builder& builder) { Shares(builder).add(); }

}  // namespace hanji::comm::hierarchical
