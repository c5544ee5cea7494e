#include "hanji/cost/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "hanji/schedule/check.h"

namespace hanji::cost {
namespace {

using schedule::Operand;
using schedule::Step;
using schedule::StepKind;
using schedule::StepList;

constexpr double kTiny = 1e-9;  // of a message or a moment: what rounding may leave over

Status check_messages_only(const StepList& list) {
  for (int rank = 0; rank < list.ranks; ++rank) {
    const auto foreign = [rank](const Operand& operand) { return operand.rank != rank; };
    for (const Step& step : list.per_rank[rank]) {
      if (step.kind == StepKind::kSync || std::ranges::any_of(step.from, foreign) ||
          std::ranges::any_of(step.to, foreign)) {
        return base::unsupported(
            fmt::format("{} {} is for ranks that share memory; a network runs lists of messages",
                        name_of(list.routine), list.algorithm));
      }
    }
  }
  return {};
}

double reduction_seconds(const Step& step, double element_bytes, const Network& network) {
  if (step.kind == StepKind::kCopy) return 0;
  const auto results = static_cast<double>(step.from.size() - 1);
  return results * static_cast<double>(step.count) * element_bytes /
         network.reduce_bytes_per_second;
}

/// Of the steps before the next message, which `next` is then, or the end.
double reductions_to_message(const std::vector<Step>& steps, size_t& next, double element_bytes,
                             const Network& network) {
  double seconds = 0;
  for (; next < steps.size() && !is_message(steps[next].kind); ++next) {
    seconds += reduction_seconds(steps[next], element_bytes, network);
  }
  return seconds;
}

void sort_transfers(Timeline& timeline) {
  std::ranges::sort(timeline.transfers, {},
                    [](const Transfer& one) { return std::tuple(one.start, one.from, one.to); });
}

Result<Timeline> waits_for_ever(int rank, size_t step) {
  return base::invalid_argument(
      fmt::format("rank {} waits for ever in step {}; check() says why", rank, step));
}

const Terms& later(const Terms& a, const Terms& b) { return a.seconds() < b.seconds() ? b : a; }

/// A message that both sides have come to.
struct Flow {
  Transfer transfer;
  double flows_from = 0;  ///< When its first byte flows.
  double left = 0;        ///< Bytes.
  double rate = 0;        ///< Bytes per second, while it flows.
  Terms terms;            ///< Of the longest path to here.
};

/// How far a rank is. Its time is that of its terms.
struct RankState {
  size_t next = 0;
  int open = 0;  ///< Messages of its group that have not ended.
  Terms terms;
};

/// Shares out the ports among flows so that no flow can have more without a slower one having less.
void share_ports(std::vector<Flow>& flows, int ranks, double rate) {
  struct Port {
    double left;
    int flows;
  };
  std::vector<Port> ports(2 * ranks, {rate, 0});  // sends, then receives
  const auto ports_of = [&](const Flow& flow) {
    return std::pair(flow.transfer.from, ranks + flow.transfer.to);
  };
  std::vector<Flow*> open;
  for (Flow& flow : flows) {
    const auto [out, in] = ports_of(flow);
    ++ports[out].flows, ++ports[in].flows;
    open.push_back(&flow);
  }
  while (!open.empty()) {
    double share = rate;
    for (const Port& port : ports) {
      if (port.flows > 0) share = std::min(share, port.left / port.flows);
    }
    const auto is_full = [&](int port) {
      return ports[port].left / ports[port].flows <= share * (1 + kTiny);
    };
    const auto fixed = std::partition(open.begin(), open.end(), [&](const Flow* flow) {
      const auto [out, in] = ports_of(*flow);
      return !is_full(out) && !is_full(in);
    });
    for (auto at = fixed; at != open.end(); ++at) {
      (*at)->rate = share;
      const auto [out, in] = ports_of(**at);
      for (const int port : {out, in}) {
        ports[port].left = std::max(0.0, ports[port].left - share);
        --ports[port].flows;
      }
    }
    open.erase(fixed, open.end());
  }
}

class Simulation {
 public:
  Simulation(const StepList& list, size_t element_bytes, const Network& network)
      : list_(list),
        element_bytes_(static_cast<double>(element_bytes)),
        network_(network),
        ranks_(list.ranks) {}

  Result<Timeline> run();

 private:
  void advance(int rank);
  void post(int rank, const Step& step);
  void begin(int from, int to, int64_t count);
  void start_flowing();
  void flow_until(double moment);
  void end_flows();
  void end(const Flow& flow);

  const StepList& list_;
  const double element_bytes_;
  const Network& network_;
  double now_ = 0;
  std::vector<RankState> ranks_;
  std::map<std::pair<int, int>, std::deque<StepKind>> posted_;  // (from, to): one side waits
  std::multimap<double, Flow> waiting_;                         // by when they flow
  std::vector<Flow> flowing_;
  Timeline timeline_;
};

Result<Timeline> Simulation::run() {
  for (int rank = 0; rank < list_.ranks; ++rank) advance(rank);
  while (!waiting_.empty() || !flowing_.empty()) {
    double moment = waiting_.empty() ? INFINITY : waiting_.begin()->first;
    for (const Flow& flow : flowing_) moment = std::min(moment, now_ + flow.left / flow.rate);
    flow_until(moment);
    end_flows();
    start_flowing();
  }
  for (int rank = 0; rank < list_.ranks; ++rank) {
    if (ranks_[rank].next < list_.per_rank[rank].size()) {
      return waits_for_ever(rank, ranks_[rank].next);
    }
    const Terms& terms = ranks_[rank].terms;
    if (rank == 0 || terms.seconds() > timeline_.seconds()) timeline_.terms = terms;
  }
  sort_transfers(timeline_);
  return std::move(timeline_);
}

// Up to the next group of messages, or the end.
void Simulation::advance(int rank) {
  RankState& state = ranks_[rank];
  const auto& steps = list_.per_rank[rank];
  state.terms.reduction += reductions_to_message(steps, state.next, element_bytes_, network_);
  if (state.next == steps.size()) return;
  const size_t end = end_of_group(steps, state.next);
  state.open = static_cast<int>(end - state.next);
  const size_t first = std::exchange(state.next, end);
  for (size_t i = first; i < end; ++i) post(rank, steps[i]);
}

void Simulation::post(int rank, const Step& step) {
  const bool sends = step.kind == StepKind::kSend;
  const std::pair way = sends ? std::pair(rank, step.peer) : std::pair(step.peer, rank);
  auto& waits = posted_[way];
  if (waits.empty() || waits.front() == step.kind) {
    waits.push_back(step.kind);
    return;
  }
  waits.pop_front();
  begin(way.first, way.second, step.count);
}

void Simulation::begin(int from, int to, int64_t count) {
  Flow flow;
  flow.terms = later(ranks_[from].terms, ranks_[to].terms);
  const double bytes = static_cast<double>(count) * element_bytes_;
  flow.transfer = {from, to, static_cast<int64_t>(bytes), flow.terms.seconds(), 0};
  flow.terms.latency += network_.latency_seconds;
  ++flow.terms.rounds;
  flow.flows_from = flow.transfer.start + network_.latency_seconds;
  flow.left = bytes;
  waiting_.emplace(flow.flows_from, flow);
}

void Simulation::start_flowing() {
  while (!waiting_.empty() && waiting_.begin()->first <= now_ * (1 + 1e-12)) {
    flowing_.push_back(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
  }
  share_ports(flowing_, list_.ranks, network_.bytes_per_second);
}

void Simulation::flow_until(double moment) {
  // What ends now has nothing left: beside a long time, the seconds of a rest may round to none.
  for (Flow& flow : flowing_) {
    const bool ends = now_ + flow.left / flow.rate <= moment;
    flow.left = ends ? 0 : flow.left - flow.rate * (moment - now_);
  }
  now_ = moment;
}

void Simulation::end_flows() {
  std::vector<Flow> ended;
  std::erase_if(flowing_, [&](const Flow& flow) {
    const bool is_over = flow.left <= kTiny * static_cast<double>(flow.transfer.bytes);
    if (is_over) ended.push_back(flow);
    return is_over;
  });
  for (const Flow& flow : ended) end(flow);
}

void Simulation::end(const Flow& flow) {
  Terms terms = flow.terms;
  terms.bandwidth += now_ - flow.flows_from;
  timeline_.transfers.push_back(flow.transfer);
  timeline_.transfers.back().end = now_;
  for (const int rank : {flow.transfer.from, flow.transfer.to}) {
    RankState& state = ranks_[rank];
    state.terms = terms;
    if (--state.open == 0) advance(rank);
  }
}

/// Whether some rank sends, or receives, two messages at once.
bool shares_ports(const StepList& list) {
  for (const auto& steps : list.per_rank) {
    for (size_t i = 0; i + 1 < steps.size(); ++i) {
      if (!steps[i + 1].joined) continue;
      const size_t end = end_of_group(steps, i);
      if (end - i > 2 || steps[i].kind == steps[i + 1].kind) return true;
    }
  }
  return false;
}

/// Of a list in which no port is shared: a message takes what its bytes take, whatever else is under
/// way, so that messages can be timed in any order in which each comes after those it waits for.
class UnsharedPorts {
 public:
  UnsharedPorts(const StepList& list, size_t element_bytes, const Network& network)
      : list_(list),
        element_bytes_(static_cast<double>(element_bytes)),
        network_(network),
        ranks_(list.ranks) {}

  Result<Timeline> run();

 private:
  /// A rank in its group: what it still waits for, from when on, and the end of what has come.
  struct Place {
    size_t next = 0;
    const Step* send = nullptr;
    const Step* recv = nullptr;
    Terms begin, end;
  };

  void advance(int rank);
  void meet(int from, int to);
  void end(int rank, const Terms& terms);

  const StepList& list_;
  const double element_bytes_;
  const Network& network_;
  std::vector<Place> ranks_;
  std::vector<int> ready_;  // ranks whose group has ended
  Timeline timeline_;
};

Result<Timeline> UnsharedPorts::run() {
  for (int rank = list_.ranks - 1; rank >= 0; --rank) ready_.push_back(rank);
  while (!ready_.empty()) {
    const int rank = ready_.back();
    ready_.pop_back();
    advance(rank);
  }
  for (int rank = 0; rank < list_.ranks; ++rank) {
    const Place& place = ranks_[rank];
    if (place.send || place.recv) return waits_for_ever(rank, place.next);
    if (rank == 0 || place.begin.seconds() > timeline_.seconds()) timeline_.terms = place.begin;
  }
  sort_transfers(timeline_);
  return std::move(timeline_);
}

// Up to the next group of messages, or the end.
void UnsharedPorts::advance(int rank) {
  Place& place = ranks_[rank];
  const auto& steps = list_.per_rank[rank];
  place.begin = place.end;
  place.begin.reduction += reductions_to_message(steps, place.next, element_bytes_, network_);
  place.end = place.begin;
  if (place.next == steps.size()) return;
  const size_t end = end_of_group(steps, place.next);
  for (; place.next < end; ++place.next) {
    const Step& step = steps[place.next];
    (step.kind == StepKind::kSend ? place.send : place.recv) = &step;
  }
  const Step *send = place.send, *recv = place.recv;
  if (send && ranks_[send->peer].recv && ranks_[send->peer].recv->peer == rank) {
    meet(rank, send->peer);
  }
  if (recv && ranks_[recv->peer].send && ranks_[recv->peer].send->peer == rank) {
    meet(recv->peer, rank);
  }
}

void UnsharedPorts::meet(int from, int to) {
  Terms terms = later(ranks_[from].begin, ranks_[to].begin);
  const double bytes = static_cast<double>(ranks_[from].send->count) * element_bytes_;
  timeline_.transfers.push_back({from, to, static_cast<int64_t>(bytes), terms.seconds(), 0});
  terms.latency += network_.latency_seconds;
  terms.bandwidth += bytes / network_.bytes_per_second;
  ++terms.rounds;
  timeline_.transfers.back().end = terms.seconds();
  ranks_[from].send = ranks_[to].recv = nullptr;
  end(from, terms);
  end(to, terms);
}

void UnsharedPorts::end(int rank, const Terms& terms) {
  Place& place = ranks_[rank];
  place.end = later(place.end, terms);
  if (!place.send && !place.recv) ready_.push_back(rank);
}

/// The steps of the longest path alone: a round lasts as long as its largest message.
Timeline walk(const StepList& list, size_t element_bytes, const Network& network) {
  Timeline timeline;
  const auto width = static_cast<double>(element_bytes);
  const std::vector<Step>& steps = list.per_rank[list.kept.rank];
  for (size_t i = 0; i < steps.size();) {
    timeline.terms.reduction += reductions_to_message(steps, i, width, network);
    if (i == steps.size()) break;
    const Step* largest = &steps[i];
    for (const size_t end = end_of_group(steps, i); i < end; ++i) {
      if (steps[i].count > largest->count) largest = &steps[i];
    }
    const bool sends = largest->kind == StepKind::kSend;
    const double bytes = static_cast<double>(largest->count) * width;
    Transfer message{list.kept.rank, largest->peer, static_cast<int64_t>(bytes), timeline.seconds(),
                     0};
    if (!sends) std::swap(message.from, message.to);
    timeline.terms.latency += network.latency_seconds;
    timeline.terms.bandwidth += bytes / network.bytes_per_second;
    ++timeline.terms.rounds;
    message.end = timeline.seconds();
    timeline.transfers.push_back(message);
  }
  return timeline;
}

}  // namespace

Result<Timeline> simulate(const StepList& list, size_t element_bytes, const Network& network) {
  if (network.latency_seconds < 0 || network.bytes_per_second <= 0 ||
      network.reduce_bytes_per_second <= 0) {
    return base::invalid_argument("a network has a latency of at least 0 and rates above 0");
  }
  if (list.kept.longest_path) return walk(list, element_bytes, network);
  HANJI_RETURN_IF_ERROR(schedule::check_bounds(list));
  HANJI_RETURN_IF_ERROR(check_messages_only(list));
  if (!shares_ports(list)) return UnsharedPorts(list, element_bytes, network).run();
  return Simulation(list, element_bytes, network).run();
}

std::vector<Round> rounds_of(const Timeline& timeline) {
  std::vector<Round> rounds;
  const double slack = kTiny * timeline.seconds();
  for (const Transfer& one : timeline.transfers) {
    if (rounds.empty() || one.start > rounds.back().start + slack)
      rounds.push_back({one.start, {}});
    rounds.back().transfers.push_back(one);
  }
  return rounds;
}

}  // namespace hanji::cost
