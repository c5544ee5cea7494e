#include "hanji/comm/hierarchical/internal/engine.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "hanji/base/checksum.h"
#include "hanji/base/clock.h"
#include "hanji/base/run_clock.h"
#include "hanji/comm/internal/record.h"
#include "hanji/comm/internal/state.h"
#include "hanji/cost/select.h"
#include "hanji/shm/call.h"
#include "hanji/shm/liveness.h"
#include "hanji/shm/segment.h"

namespace hanji::comm::hierarchical {
namespace {

using schedule::Routine;

constexpr int kMaxSteps = 64;  // of one advance()
constexpr int kPollsBeforeNap = 64;
constexpr std::string_view kOnHost = "on the host of ranks";

Status status_of(const Error& error) { return {error.code(), error.what()}; }

/// What the calls between hosts are chosen by, which nobody compares any more: it must be equal.
std::string way_of(const GroupOptions& options) {
  std::string named;
  for (int i = 0; i < schedule::kNumRoutines && options.chooser; ++i) {
    const auto routine = static_cast<Routine>(i);
    const std::string_view name = options.chooser->named(routine);
    if (!name.empty()) named += fmt::format("{} {};", schedule::name_of(routine), name);
  }
  const std::string bits = options.bits == Bits::kFast ? "bits fast" : "bits run";
  if (named.empty()) return bits;
  return fmt::format("{}, names {:08x}", bits,
                     base::xxh3(std::as_bytes(std::span(named))) & 0xffffffff);
}

/// A host that is late itself says so before its rail peers give it up.
std::chrono::nanoseconds with_grace(std::chrono::nanoseconds deadline) {
  return deadline + std::min<std::chrono::nanoseconds>(deadline / 4, std::chrono::seconds(2));
}

}  // namespace

HierarchicalEngine::HierarchicalEngine(Peers peers, const GroupOptions& options)
    : peers_(std::move(peers)),
      name_("shm + " + peers_.between),
      way_(way_of(options)),
      deadline_(with_grace(options.deadline)),
      recorder_(options.recorder),
      group_(options.id),
      names_(options.rank_names),
      stages_(peers_) {}

Result<uint64_t> HierarchicalEngine::submit(const Request& request, const Choice&) {
  if (!status_.ok()) return status_;
  calls_.push_back({request, ++submitted_, base::now_ns()});
  (void)advance();  // a failure belongs to the call, which was started: wait() reports it
  return submitted_;
}

Status HierarchicalEngine::advance() {
  if (!status_.ok()) return status_;
  try {
    peers_.local.state()->advance();
    for (int steps = 0; steps < kMaxSteps && step(); ++steps) {
    }
  } catch (const Error& error) {
    lose(error);
  }
  return status_;
}

Status HierarchicalEngine::check() {
  if (!status_.ok() || phase_ == Phase::kIdle) return status_;
  const shm::Segment& segment = *peers_.local.heap().segment();
  if (segment.aborted()) {
    lose(Error(segment.abort_status()));
  } else if (phase_ != Phase::kStages && base::running_ns() - since_running_ns_ > limit().count()) {
    lose(Error(late()));
  }
  return status_;
}

Status HierarchicalEngine::wait(uint64_t ticket, std::span<Engine* const> others) {
  const int64_t busy_ns = peers_.local.stats().busy_ns;
  clock_.begin_wait();
  const Status status = poll_until(ticket, others);
  clock_.end_wait();
  busy_in_wait_ns_ += peers_.local.stats().busy_ns - busy_ns;
  return status;
}

Status HierarchicalEngine::poll_until(uint64_t ticket, std::span<Engine* const> others) {
  for (int polls = 1; ticket > completed_; ++polls) {
    const size_t began = stages_.num_begun();
    const uint64_t before = completed_;
    HANJI_RETURN_IF_ERROR(advance());
    if (completed_ != before || stages_.num_begun() != began) polls = 0;
    if (polls < kPollsBeforeNap) {
      std::this_thread::yield();
      continue;
    }
    HANJI_RETURN_IF_ERROR(check());
    for (Engine* other : others) (void)other->advance();  // told to those who wait for them
    std::this_thread::sleep_for(kPollInterval);
  }
  return {};
}

int64_t HierarchicalEngine::busy_ns() const {
  const int64_t rail_peers = peers_.rail_peers ? peers_.rail_peers->stats().busy_ns : 0;
  return peers_.local.stats().busy_ns + rail_peers + stages_.stats_of_all().busy_ns;
}

// What moves inside the host is moved by this thread, in wait() or on the way; what moves between
// hosts may hide behind what the rank computes.
std::optional<CallTimes> HierarchicalEngine::times() const {
  CallTimes times = clock_.times();
  times.exposed_ns += peers_.local.stats().busy_ns - busy_in_wait_ns_;
  times.transfer_ns = times.exposed_ns + hidden_ns_;
  return times;
}

int64_t HierarchicalEngine::between_hosts_ns() const {
  return peers_.rail_peers ? peers_.rail_peers->stats().times.value_or(CallTimes()).transfer_ns : 0;
}

int64_t HierarchicalEngine::network_bytes() const {
  const int64_t all = stages_.stats_of_all().network_bytes;
  return all +
         (peers_.rail_peers ? peers_.rail_peers->stats().network_bytes - bytes_of_exchange_ : 0);
}

int HierarchicalEngine::num_neighbours() const { return peers_.local.size(); }

bool HierarchicalEngine::step() {
  switch (phase_) {
    case Phase::kIdle:
      if (calls_.empty()) return false;
      open();
      return true;
    case Phase::kHost:
      if (!exchange_.over()) return false;
      compare_across_hosts(judge(received(num_neighbours()), names_));
      return true;
    case Phase::kRailPeers:
      if (!exchange_.over()) return false;
      spread(judge(received(peers_.hosts.num_hosts()), names_));
      return true;
    case Phase::kVerdict:
      if (!exchange_.over()) return false;
      apply(judge(received(1), names_));
      return true;
    case Phase::kStages: {
      const auto progress = stages_.step();
      if (progress == StageRunner::Progress::kOver) close();
      return progress != StageRunner::Progress::kNone;
    }
  }
  return false;
}

void HierarchicalEngine::open() {
  const Call& call = calls_.front();
  mine_ = make_frame(call.request, way_, call.sequence, rank());
  try {
    stages_.prepare(call.request);
  } catch (const Error& error) {  // all ranks receive it, and none waits for this one
    set_verdict(mine_, status_of(error).at("rank " + names_.of(rank())));
  }
  phase_since_ns_ = base::now_ns();
  since_running_ns_ = base::running_ns(phase_since_ns_);
  phase_ = Phase::kHost;
  exchange_ = exchange(peers_.local, Routine::kAllGather, num_neighbours());
}

void HierarchicalEngine::compare_across_hosts(const Status& verdict) {
  if (!verdict.ok()) set_verdict(mine_, verdict);
  if (!peers_.rail_peers) {
    phase_ = Phase::kVerdict;
    exchange_ = exchange(peers_.local, Routine::kBroadcast, 1);
    return;
  }
  phase_ = Phase::kRailPeers;
  exchange_ = exchange(*peers_.rail_peers, Routine::kAllGather, peers_.hosts.num_hosts());
}

void HierarchicalEngine::spread(const Status& verdict) {
  if (!has_rank_without_rail()) return apply(verdict);
  if (!verdict.ok()) set_verdict(mine_, verdict);
  phase_ = Phase::kVerdict;
  exchange_ = exchange(peers_.local, Routine::kBroadcast, 1);
}

void HierarchicalEngine::apply(const Status& verdict) {
  if (!verdict.ok()) phase_ = Phase::kVerdict;  // it is told: nobody knows more
  base::throw_if_error(verdict);
  received_.reset();  // not kept into a time that observes what is freed
  arrived_ns_ = base::now_ns();
  between_at_arrival_ns_ = between_hosts_ns();
  phase_ = Phase::kStages;
}

void HierarchicalEngine::close() {
  const Call& call = calls_.front();
  const int64_t now = base::now_ns();
  const CallParts parts = clock_.add(phase_since_ns_, arrived_ns_, now);
  const int64_t unseen = parts.exposed_ns - arrived_ns_;
  record_parts(recorder_, call.request, parts);
  hidden_ns_ += std::min(between_hosts_ns() - between_at_arrival_ns_, unseen);
  record_call(recorder_, call.request, {call.start_ns, call.sequence, size(), group_});
  completed_ = call.sequence;
  calls_.pop_front();
  phase_ = Phase::kIdle;
}

Begun HierarchicalEngine::exchange(const Group& group, Routine routine, int num_frames) {
  at::Tensor said = at::empty({static_cast<int64_t>(sizeof(Frame))}, at::kByte);
  std::memcpy(said.data_ptr(), &mine_, sizeof(mine_));
  const bool gathers = routine == Routine::kAllGather;
  if (&group != &peers_.local) bytes_of_exchange_ += (num_frames - 1) * said.numel();
  received_ = gathers ? at::empty({num_frames * said.numel()}, at::kByte) : said;
  Request request{.routine = routine,
                  .dtype = DType::kUInt8,
                  .count = said.numel(),
                  .tag = shm::kComparisonTag,
                  .deadline = peers_.deadline_in(group, calls_.front().request.deadline),
                  .input = said,
                  .output = received_,
                  .label = calls_.front().request.label,
                  .call_site = calls_.front().request.call_site,
                  .agreed = true};
  return {&group, group.state()->submit(std::move(request)).sequence};
}

std::span<const Frame> HierarchicalEngine::received(int num_frames) const {
  return {static_cast<const Frame*>(received_.const_data_ptr()), static_cast<size_t>(num_frames)};
}

/// A failure on this host is known to its ranks, and told to the rail peers if they listen. One of the
/// rail peers is told to the ranks of this host.
void HierarchicalEngine::lose(const Error& error) {
  status_ = status_of(error);
  if (status_.code() == Code::kMismatch) return;  // known everywhere
  const shm::Segment& segment = *peers_.local.heap().segment();
  if (phase_ == Phase::kHost || segment.aborted()) {
    status_ = located(segment.aborted() ? segment.abort_status() : status_);
    return notify_rail_peers();
  }
  const auto patience = base::Deadline::after(kVerdictTime);
  while (phase_ != Phase::kVerdict && !segment.aborted() && !patience.passed()) {
    std::this_thread::sleep_for(kPollInterval);
  }
  if (segment.aborted()) {
    status_ = located(segment.abort_status());
  } else {
    peers_.local.heap().segment()->abort(peers_.local.heap().rank(), status_.code(),
                                         status_.message());
  }
}

/// The ranks of a host are numbered from 0 in what its memory says, unless it knows their names.
Status HierarchicalEngine::located(const Status& status) const {
  const std::vector<int>& ranks = peers_.hosts.ranks(peers_.hosts.host(rank()));
  const shm::Segment& segment = *peers_.local.heap().segment();
  if (shm::rank_in_world(segment, peers_.local.heap().rank())) return status;
  if (ranks[0] == 0 || status.message().find(kOnHost) != std::string::npos) return status;
  return status.at(fmt::format("{} {}, numbered from 0 there", kOnHost, fmt::join(ranks, ", ")));
}

void HierarchicalEngine::notify_rail_peers() {
  if (phase_ != Phase::kHost || !peers_.rail_peers) return;
  set_verdict(mine_, status_);
  try {
    (void)exchange(*peers_.rail_peers, Routine::kAllGather, peers_.hosts.num_hosts());
  } catch (const Error&) {  // they are lost as well: there is nobody to tell
  }
}

std::chrono::nanoseconds HierarchicalEngine::limit() const {
  const std::chrono::nanoseconds own = calls_.front().request.deadline;
  return own.count() > 0 ? with_grace(own) : deadline_;
}

Status HierarchicalEngine::late() const {
  const Call& call = calls_.front();
  std::vector<std::string> absent;
  for (const int peer :
       peers_.hosts.rail_peers(std::min(peers_.local.rank(), peers_.hosts.num_rails() - 1))) {
    if (peer != rank()) absent.push_back(names_.of(peer));
  }
  return base::timeout(fmt::format(
      "{} '{}' at {}:{}: call {} was begun by all ranks of the host of rank {}, but not on every "
      "other host within {:.3g} s; this rank waits for one of ranks {}",
      schedule::name_of(call.request.routine), call.request.label,
      call.request.call_site.file_name(), call.request.call_site.line(), call.sequence,
      names_.of(rank()), std::chrono::duration<double>(limit()).count(), fmt::join(absent, ", ")));
}

}  // namespace hanji::comm::hierarchical
