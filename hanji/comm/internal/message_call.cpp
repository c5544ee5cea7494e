#include "hanji/comm/internal/message_call.h"

#include <utility>

#include "hanji/base/clock.h"

namespace hanji::comm {
namespace {

using schedule::Routine;

int64_t sent_by_list(const schedule::StepList& list, int rank) {
  int64_t elements = 0;
  for (const schedule::Step& step : list.per_rank[rank]) {
    if (step.kind == schedule::StepKind::kSend) elements += step.count;
  }
  return elements;
}

/// Elements that a rank has to send at least.
int64_t sent_at_least(const Request& request, int rank, int size) {
  const std::vector<int64_t>& counts = request.counts;
  const int64_t share = counts.empty() ? request.count : counts[rank];
  const int64_t all = counts.empty() ? request.count * size : request.count;
  const bool at_root = rank == request.root;
  switch (request.routine) {
    case Routine::kBroadcast: return at_root ? request.count : 0;
    case Routine::kReduce: return at_root ? 0 : request.count;
    case Routine::kAllReduce: return 2 * (size - 1) * request.count / size;
    case Routine::kAllGather: return (size - 1) * share;
    case Routine::kGather: return at_root ? 0 : share;
    case Routine::kScatter: return at_root ? all - share : 0;
    case Routine::kReduceScatter: return all - share;
    case Routine::kAllToAll: {
      if (counts.empty()) return all - share;
      int64_t given = -counts[rank * size + rank];
      for (int peer = 0; peer < size; ++peer) given += counts[rank * size + peer];
      return given;
    }
    default: return 0;
  }
}

}  // namespace

MessageCall::MessageCall(Wire& wire, const RankNames& names, What what)
    : wire_(wire),
      names_(names),
      what_(std::move(what)),
      mine_(describe(what_.request, say_way(what_.choice), what_.sequence)),
      start_ns_(base::now_ns()),
      all_(wire.size()) {}

int64_t MessageCall::sent_bytes() const {
  const Request& request = what_.request;
  const int64_t elements = what_.choice.steps ? sent_by_list(*what_.choice.steps, wire_.rank())
                                              : sent_at_least(request, wire_.rank(), wire_.size());
  return elements * static_cast<int64_t>(base::size_of(request.dtype));
}

std::vector<int> MessageCall::waits_for() const {
  if (stage_ == Stage::kAgreeing) return wire_.absent();
  if (stage_ != Stage::kWalking) return {};
  std::vector<int> peers = walk_->waits_for();
  if (wire_.blocks() && !peers.empty()) peers.erase(peers.begin() + 1, peers.end());
  return peers;
}

bool MessageCall::advance() {
  const bool meets = !what_.request.agreed || what_.request.routine == Routine::kBarrier;
  if (stage_ == Stage::kAgreeing && !meets) begin();
  if (stage_ == Stage::kAgreeing) {
    if (!pending_) {
      pending_ = wire_.gather(std::as_bytes(std::span(&mine_, 1)),
                              std::as_writable_bytes(std::span(all_)));
    }
    if (!pending_->done()) return false;
    for (Description& one : all_) one.way.back() = one.where.back() = 0;
    base::throw_if_error(compare(all_, names_));
    begin();
  }
  if (stage_ == Stage::kWalking && walk_->advance()) stage_ = Stage::kDone;
  if (stage_ == Stage::kNative && pending_->done()) stage_ = Stage::kDone;
  return stage_ == Stage::kDone;
}

void MessageCall::begin() {
  agreed_ns_ = pending_ ? base::now_ns() : start_ns_;
  pending_.reset();
  if (what_.request.routine == Routine::kBarrier) {
    stage_ = Stage::kDone;
  } else if (what_.choice.steps) {
    walk_.emplace(wire_, what_.request, *what_.choice.steps);
    stage_ = Stage::kWalking;
  } else if (what_.request.count == 0) {
    stage_ = Stage::kDone;
  } else {
    pending_ = wire_.run(what_.request);
    stage_ = Stage::kNative;
  }
}

}  // namespace hanji::comm
