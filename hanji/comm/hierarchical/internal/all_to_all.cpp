#include <utility>

#include "hanji/comm/hierarchical/internal/builder.h"

namespace hanji::comm::hierarchical {
namespace {

using schedule::Routine;

/// What goes from each rank to each other goes first to the rail of this host that carries what is
/// for the receiver's rail, then to the receiver's host, then, on a host with more ranks than
/// rails, to the receiver.
class AllToAll {
 public:
  explicit AllToAll(Builder& b) : b_(b), hosts_(b.hosts()), size_(hosts_.num_ranks()) {}

  void add() {
    const int gathered = add_to_rails();
    const int crossed = add_cross(gathered);
    hosts_.even() ? add_order_of_senders(crossed) : add_to_receivers(crossed);
  }

 private:
  using Ranks = std::vector<int>;

  int64_t given(int from, int to) const {
    const auto& counts = b_.shape().counts;
    return counts.empty() ? b_.shape().count : counts[from * size_ + to];
  }
  int carrier(int rank) const { return hosts_.rail(rank) % b_.num_rails(); }
  /// Ranks of `host` whose messages `rail` carries.
  Ranks carried(int host, int rail) const {
    Ranks found;
    for (const int rank : hosts_.ranks(host)) {
      if (carrier(rank) == rail) found.push_back(rank);
    }
    return found;
  }
  int64_t given(const Ranks& from, const Ranks& to) const {
    int64_t sum = 0;
    for (const int sender : from) {
      for (const int receiver : to) sum += given(sender, receiver);
    }
    return sum;
  }
  /// Elements of this rank's input before what is for `to`, or of its output before what is from.
  int64_t before(int rank, bool of_output) const {
    int64_t sum = 0;
    for (int other = 0; other < rank; ++other) {
      sum += of_output ? given(other, b_.rank()) : given(b_.rank(), other);
    }
    return sum;
  }
  /// As Request::counts of an all_to_all between `parties`.
  template <typename Count>
  static std::vector<int64_t> matrix(int parties, const Count& count) {
    std::vector<int64_t> counts;
    for (int from = 0; from < parties; ++from) {
      for (int to = 0; to < parties; ++to) counts.push_back(count(from, to));
    }
    return counts;
  }
  void make_room(int64_t elements) {
    b_.program.wide = std::max(b_.program.wide, elements);
    b_.program.rail = std::max(b_.program.rail, elements);
  }
  Piece all_of(Buffer buffer, int64_t count) const { return {buffer, 0, count}; }

  /// Input, by receiver -> kWide, by rail and then receiver's host -> kRail, by sender.
  int add_to_rails() {
    std::vector<Move> moves;
    int64_t end = 0;
    for (int rail = 0; rail < b_.num_rails(); ++rail) {
      for (int host = 0; host < hosts_.num_hosts(); ++host) {
        for (const int to : carried(host, rail)) {
          const int64_t count = given(b_.rank(), to);
          moves.push_back(
              {{Buffer::kInput, before(to, false), count}, {Buffer::kWide, end, count}});
          end += count;
        }
      }
    }
    const int ordered = b_.move(std::move(moves), -1);
    const Ranks& here = b_.neighbours();
    const auto count = [&](int from, int rail) {
      int64_t sum = 0;
      for (int host = 0; rail < b_.num_rails() && host < hosts_.num_hosts(); ++host) {
        sum += given({here[from]}, carried(host, rail));
      }
      return sum;
    };
    for (size_t from = 0; from < here.size(); ++from) {
      got_ += count(static_cast<int>(from), b_.rail());
    }
    make_room(std::max(end, got_));
    return b_.local(Routine::kAllToAll, all_of(Buffer::kWide, end), all_of(Buffer::kRail, got_),
                    matrix(static_cast<int>(here.size()), count), ordered);
  }

  /// kRail, by sender, host and receiver -> kWide, by host, sender and receiver -> kRail, by sender
  /// of all and receiver.
  int add_cross(int after) {
    if (!b_.carries()) return after;
    std::vector<Move> moves;
    int64_t end = 0;
    for (int host = 0; host < hosts_.num_hosts(); ++host) {
      int64_t start = 0;
      for (const int from : b_.neighbours()) {
        int64_t begin = start;
        for (int before = 0; before < host; ++before) {
          begin += given({from}, carried(before, b_.rail()));
        }
        const int64_t count = given({from}, carried(host, b_.rail()));
        moves.push_back({{Buffer::kRail, begin, count}, {Buffer::kWide, end, count}});
        end += count;
        for (int any = 0; any < hosts_.num_hosts(); ++any) {
          start += given({from}, carried(any, b_.rail()));
        }
      }
    }
    const int ordered = b_.move(std::move(moves), after);
    const auto count = [&](int from, int to) {
      return given(hosts_.ranks(from), carried(to, b_.rail()));
    };
    int64_t arrives = 0;
    for (int host = 0; host < hosts_.num_hosts(); ++host) arrives += count(host, b_.host());
    make_room(std::max(end, arrives));
    got_ = arrives;
    return b_.cross(Routine::kAllToAll, all_of(Buffer::kWide, end), all_of(Buffer::kRail, arrives),
                    matrix(hosts_.num_hosts(), count), ordered);
  }

  Ranks senders() const {
    Ranks ranks;
    for (int host = 0; host < hosts_.num_hosts(); ++host) {
      ranks.insert(ranks.end(), hosts_.ranks(host).begin(), hosts_.ranks(host).end());
    }
    return ranks;
  }

  /// `from`, by host and sender -> output, by sender.
  void add_order_of_senders(int after, Buffer from = Buffer::kRail) {
    std::vector<Move> moves;
    int64_t begin = 0;
    for (const int sender : senders()) {
      const int64_t count = given(sender, b_.rank());
      moves.push_back({{from, begin, count}, {Buffer::kOutput, before(sender, true), count}});
      begin += count;
    }
    b_.move(std::move(moves), after);
  }

  /// kRail, by sender and receiver -> kWide, by receiver and sender -> kRail of the receiver.
  void add_to_receivers(int after) {
    const Ranks& here = b_.neighbours();
    const Ranks mine = b_.carries() ? carried(b_.host(), b_.rail()) : Ranks();
    std::vector<Move> moves;
    int64_t end = 0;
    for (const int to : mine) {
      int64_t start = 0;
      for (const int from : senders()) {
        int64_t begin = start;
        for (const int other : mine) {
          if (other < to) begin += given(from, other);
        }
        moves.push_back(
            {{Buffer::kRail, begin, given(from, to)}, {Buffer::kWide, end, given(from, to)}});
        end += given(from, to);
        start += given({from}, mine);
      }
    }
    const int ordered = b_.move(std::move(moves), after);
    const auto count = [&](int rail, int to) {
      return carrier(here[to]) == rail ? given(senders(), {here[to]}) : 0;
    };
    const int64_t gets = given(senders(), {b_.rank()});
    make_room(std::max(end, gets));
    const int spread =
        b_.local(Routine::kAllToAll, all_of(Buffer::kWide, end), all_of(Buffer::kRail, gets),
                 matrix(static_cast<int>(here.size()), count), ordered);
    add_order_of_senders(spread);
  }

  Builder& b_;
  const HostMap& hosts_;
  const int size_;
  int64_t got_ = 0;
};

}  // namespace

void add_all_to_all(Builder& builder) { AllToAll(builder).add(); }

}  // namespace hanji::comm::hierarchical
