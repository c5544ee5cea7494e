#include "hanji/shm/engine.h"

#include <algorithm>
#include <array>
#include <optional>

#include "hanji/base/clock.h"
#include "hanji/base/run_clock.h"
#include "hanji/shm/internal/preparation.h"
#include "hanji/shm/internal/runner.h"
#include "hanji/shm/internal/spin_wait.h"
#include "hanji/shm/internal/verdict.h"
#include "hanji/shm/numa.h"
#include "hanji/trace/recorder.h"

namespace hanji::shm {

using namespace internal;
using namespace std::chrono_literals;

namespace {

constexpr int64_t kBudgetBytes = 4 << 20;  // memory traffic of one advance()
constexpr int kSpinsAlone = 2000;          // where every thread has its processor
constexpr int kSpinsOversubscribed = 4;
constexpr auto kSleepAfterAlone = 1ms;  // of yielding; a sleeper is woken, but that takes its time
constexpr auto kSleepAfterOversubscribed = 50us;
constexpr auto kLongestSleep = 20ms;        // clocks and peers are looked at that often
constexpr auto kSleepBesideOthers = 200us;  // calls of other groups do not wake these waiters

Status check_members(const Segment& segment, const std::vector<int>& members) {
  std::vector<bool> seen(segment.ranks());
  for (const int rank : members) {
    if (rank < 0 || rank >= segment.ranks() || seen[rank]) {
      return base::invalid_argument("group: member " + std::to_string(rank) +
                                    " is repeated or not one "
                                    "of the " +
                                    std::to_string(segment.ranks()) + " ranks");
    }
    seen[rank] = true;
  }
  return {};
}

// A death that was reported while an epoch ended is not reported again in the next.
Status check_alive(const Segment& segment, const std::vector<int>& members,
                   const EngineOptions& options) {
  const uint32_t epoch = options.epoch.value_or(segment.epoch());
  if (epoch == 0 || segment.aborted(epoch)) return {};
  for (const int member : members) {
    const uint32_t presence = segment.rank_state(member).presence.load();
    if (presence != static_cast<uint32_t>(Presence::kDead)) continue;
    return base::peer_lost("group: rank " + std::to_string(member) +
                           " of the host is dead; go on without it");
  }
  return {};
}

/// Shares of ranks with different ones, as either list of a call says.
std::span<const int64_t> counts_of(const Call& call) {
  const auto& steps = call.steps ? call.steps : call.steps_if_private;
  return steps ? std::span<const int64_t>(steps->counts) : std::span<const int64_t>();
}

}  // namespace

class Engine::Core {
 public:
  Core(std::shared_ptr<Segment> segment, GroupLines lines, const EngineOptions& options)
      : segment_(std::move(segment)),
        epoch_(options.epoch.value_or(segment_->epoch())),
        abort_(segment_->abort_word(epoch_)),
        options_(options),
        lines_(std::move(lines)),
        preparation_(lines_),
        runner_(lines_, stats_, options.recorder),
        operations_(16) {
    choose_spins();
    if (options_.recorder != nullptr) name_routines();
  }

  Result<uint64_t> submit(const Call& call) {
    if (!healthy()) HANJI_RETURN_IF_ERROR(health());
    if (submitted_ - completed_ == operations_.size()) enlarge();
    Operation& operation = at(submitted_ + 1);
    HANJI_RETURN_IF_ERROR(
        preparation_.prepare(call, runner_.first_operation() + submitted_ + 1, operation));
    const bool recorded = options_.recorder != nullptr;
    const bool at_once = operation.descriptor.in_line;  // peers wait for the line, not for a clock
    operation.start_ns = recorded && !at_once ? base::now_ns() : 0;
    if (call.deadline.count() > 0) operation.submitted_ns = base::running_ns();
    ++submitted_;
    // A failure belongs to the call, which was started: wait() reports it.
    (void)advance();
    if (recorded && at_once && completed_ != submitted_) operation.start_ns = base::now_ns();
    return submitted_;
  }

  Status advance() {
    if (!healthy()) HANJI_RETURN_IF_ERROR(health());
    int64_t budget = kBudgetBytes;
    while (completed_ != submitted_ && budget > 0) {
      post_ahead();
      Operation& operation = at(completed_ + 1);
      runner_.clock().set_call(names_[static_cast<size_t>(operation.call.routine)]);
      const Result<bool> complete = runner_.run(operation, budget);
      if (!complete.ok()) return fail(complete.status());
      if (!*complete) break;
      finish(operation);
    }
    return {};
  }

  Status check() {
    HANJI_RETURN_IF_ERROR(health());
    const bool moved = runner_.progress() != checked_progress_;
    checked_progress_ = runner_.progress();
    if (stuck_since_ns_ != 0 && (moved || completed_ == submitted_)) unstuck();
    return moved || completed_ == submitted_ ? Status() : look_around();
  }

  bool done(uint64_t ticket) const { return ticket <= completed_; }

  bool called() const {
    if (completed_ != submitted_) return false;
    for (int member = 0; member < size(); ++member) {
      if (member != rank() && lines_.has_posted(member, runner_.sequence() + 1)) return true;
    }
    return false;
  }

  Status wait(uint64_t ticket, std::span<Engine* const> others) {
    if (ticket > submitted_) {
      return base::invalid_argument("wait: ticket " + std::to_string(ticket) + " of " +
                                    std::to_string(submitted_) + " submitted calls");
    }
    if (ticket <= completed_) return {};
    set_waiting(true);
    const Status status = drive(ticket, others);
    set_waiting(false);
    if (stuck_since_ns_ != 0) unstuck();
    return status;
  }

  bool cancel(uint64_t ticket) {
    const uint64_t operation = runner_.first_operation() + ticket;
    if (lines_.last_completed(lines_.me()) >= operation) return false;
    lines_.cancel(operation);
    return true;
  }

  uint64_t arrived(uint64_t ticket) const {
    return members_at(ticket, [this](int member) { return lines_.last_operation(member); });
  }

  uint64_t delivered(uint64_t ticket) const {
    return members_at(ticket, [this](int member) { return lines_.last_completed(member); });
  }

  void set_waiting(bool waiting) { runner_.clock().set_waiting(waiting); }
  bool traced() const { return options_.recorder != nullptr; }
  uint32_t epoch() const { return epoch_; }
  bool oversubscribed() const { return oversubscribed_; }
  int rank() const { return lines_.me(); }
  int size() const { return lines_.size(); }
  const Stats& stats() const { return stats_; }

 private:
  Operation& at(uint64_t ticket) { return operations_[ticket % operations_.size()]; }

  void enlarge() {
    std::vector<Operation> larger(2 * operations_.size());
    for (uint64_t ticket = completed_ + 1; ticket <= submitted_; ++ticket) {
      larger[ticket % larger.size()] = std::move(at(ticket));
    }
    operations_ = std::move(larger);
  }

  bool healthy() const {
    return failure_.ok() && abort_.state.load(std::memory_order_acquire) != AbortWord::kSet &&
           lines_.cancelled().member < 0;
  }

  Status health() {
    if (!failure_.ok()) return failure_;
    if (segment_->aborted(epoch_)) return fail(segment_->abort_status(epoch_));
    if (const auto by = lines_.cancelled(); by.member >= 0) {
      const bool inside = completed_ != submitted_;
      return fail(cancelled_verdict(lines_, by, inside ? &at(completed_ + 1).descriptor : nullptr));
    }
    return {};
  }

  template <class LastOf>
  uint64_t members_at(uint64_t ticket, LastOf last_of) const {
    uint64_t bits = 0;
    for (int member = 0; member < lines_.size(); ++member) {
      const bool there = last_of(member) >= runner_.first_operation() + ticket;
      bits |= static_cast<uint64_t>(there) << member;
    }
    return bits;
  }

  Status fail(Status status) {
    failure_ = std::move(status);
    // What an older epoch left belongs to the one that came after it.
    if (segment_->epoch() == epoch_) lines_.set_failed(failure_.code());
    return failure_;
  }

  void choose_spins() {
    const int processors =
        options_.usable_processors > 0 ? options_.usable_processors : segment_->num_processors();
    oversubscribed_ = segment_->ranks() * options_.threads_per_rank > processors;
    spins_ = options_.spin >= 0 ? options_.spin
             : oversubscribed_  ? kSpinsOversubscribed
                                : kSpinsAlone;
  }

  void name_routines() {
    auto calls = trace::Recorder::attach(segment_->call_memory(lines_.world_rank(lines_.me())));
    if (calls.ok()) calls_ = *calls;
    for (int i = 0; i < schedule::kNumRoutines; ++i) {
      const std::string_view name = name_of(static_cast<schedule::Routine>(i));
      names_[i] = options_.recorder->intern(name);
      if (calls_) call_names_[i] = calls_->intern(name);
    }
  }

  void finish(Operation& operation) {
    const Call& call = operation.call;
    if (completed_ == 0) choose_spins();  // by now every rank has joined
    ++completed_;
    lines_.set_completed(operation.descriptor.operation);
    ++stats_.num_calls;
    const auto bytes = call.count * static_cast<int64_t>(size_of(call.dtype));
    stats_.bytes += bytes;
    stats_.wire_bytes +=
        operation.running->wire_elements * static_cast<int64_t>(size_of(call.dtype));
    if (options_.recorder == nullptr) return;
    runner_.clock().flush();
    trace::Event event;
    event.end_ns = base::now_ns();
    event.start_ns = operation.start_ns != 0 ? operation.start_ns : event.end_ns;
    event.name = names_[static_cast<size_t>(call.routine)];
    event.lane = trace::Lane::kCommunication;
    event.category = trace::Category::kCommunication;
    event.step = options_.recorder->step();
    event.bytes = bytes;
    event.sequence = static_cast<int64_t>(operation.descriptor.operation);
    event.group_size = size();
    event.group = lines_.group();
    event.routine = static_cast<uint8_t>(call.routine);
    if (schedule::reduces(call.routine)) event.op = static_cast<uint8_t>(call.op);
    event.dtype = static_cast<uint8_t>(call.dtype);
    event.counts = schedule::hash_of_counts(call.count, counts_of(call));
    event.call_site = call.call_site;
    options_.recorder->add(event);
    if (!calls_) return;
    event.name = call_names_[static_cast<size_t>(call.routine)];
    calls_->add(event);
  }

  Status drive(uint64_t ticket, std::span<Engine* const> others) {
    SpinWait spin(spins_);
    while (true) {
      const uint64_t before = runner_.progress();
      HANJI_RETURN_IF_ERROR(advance());
      if (ticket <= completed_) return {};
      if (runner_.progress() != before) {
        spin.reset();
        if (stuck_since_ns_ != 0) unstuck();
        continue;
      }
      if (!spin.pause()) continue;
      for (Engine* other : others) {
        const int64_t busy_ns = other->stats().busy_ns;
        (void)other->advance();  // its own wait() reports failures
        runner_.clock().leave_out(other->stats().busy_ns - busy_ns);
      }
      HANJI_RETURN_IF_ERROR(look_around());
      const auto waited = std::chrono::nanoseconds(base::now_ns() - stuck_since_ns_);
      if (waited > (oversubscribed_ ? kSleepAfterOversubscribed : kSleepAfterAlone)) {
        lines_.sleep(runner_.sequence(), others.empty() ? kLongestSleep : kSleepBesideOthers);
      }
    }
  }

  void post_ahead() {
    ahead_ = std::max(ahead_, completed_);
    while (ahead_ != submitted_ && runner_.post_ahead(at(ahead_ + 1))) ++ahead_;
  }

  // Past the spinning: has the time run out, has anybody gone?
  Status look_around() {
    const int64_t now = base::now_ns();
    const Operation& operation = at(completed_ + 1);
    if (stuck_since_ns_ == 0) {
      stuck_since_ns_ = now;
      stuck_since_running_ns_ = base::running_ns(now);
      my_state().waiting_since_ns.store(now, std::memory_order_relaxed);
      my_state().waiting.store(pack_waiting(lines_.group(), operation.descriptor.operation),
                               std::memory_order_release);
    }
    const int64_t running = base::running_ns(now);
    const Waiting waiting{runner_.sequence(), operation.descriptor.operation, operation.descriptor,
                          static_cast<double>(running - stuck_since_running_ns_) / 1e9};
    for (int member = 0; member < size(); ++member) {
      const bool failed = lines_.failed(member) != Code::kOk;
      const auto presence = segment_->rank_state(lines_.world_rank(member)).presence.load();
      const bool left = presence == static_cast<uint32_t>(Presence::kLeft);
      if (!failed && !left) continue;
      // Checked last: a rank that failed or left after posting is not waited for.
      if (lines_.has_posted(member, waiting.sequence)) continue;
      // Who ends the job does so before it leaves or gives up, and its word says more.
      HANJI_RETURN_IF_ERROR(health());
      return fail(failed ? gave_up_verdict(lines_, waiting, member)
                         : left_verdict(lines_, waiting, member));
    }
    return out_of_time(running) ? fail(timeout_verdict(lines_, waiting)) : Status();
  }

  // The first open call may wait until its deadline or the engine's; those behind it until theirs.
  // `running`: of base::running_ns().
  bool out_of_time(int64_t running) {
    for (uint64_t ticket = completed_ + 1; ticket <= submitted_; ++ticket) {
      const Operation& operation = at(ticket);
      const bool own = operation.call.deadline.count() > 0;
      if (!own && ticket != completed_ + 1) continue;
      const auto limit = own ? operation.call.deadline : options_.deadline;
      const int64_t since =
          own ? std::max(stuck_since_running_ns_, operation.submitted_ns) : stuck_since_running_ns_;
      if (running - since > limit.count()) return true;
    }
    return false;
  }

  RankState& my_state() { return segment_->rank_state(lines_.world_rank(rank())); }

  void unstuck() {
    stats_.wait_ns += base::now_ns() - stuck_since_ns_;
    stuck_since_ns_ = 0;
    // Until this rank ends the job, others whose time runs out look here for whom it waited.
    const bool gave_up = failure_.code() == Code::kTimeout;
    const uint64_t operation = at(completed_ + 1).descriptor.operation;
    my_state().waiting.store(gave_up ? pack_waiting(lines_.group(), operation) | kGaveUp : 0,
                             std::memory_order_release);
  }

  std::shared_ptr<Segment> segment_;
  const uint32_t epoch_;
  const AbortWord& abort_;  ///< Of that epoch; looked at before every poll.
  EngineOptions options_;
  Stats stats_;
  GroupLines lines_;
  Preparation preparation_;
  Runner runner_;
  std::vector<Operation> operations_;  ///< A ring; tickets completed_ + 1 to submitted_ are open.
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  uint64_t ahead_ = 0;  ///< The last ticket whose syncs have all been posted ahead.
  Status failure_;
  int spins_ = kSpinsOversubscribed;
  bool oversubscribed_ = true;
  int64_t stuck_since_ns_ = 0;
  int64_t stuck_since_running_ns_ = 0;
  uint64_t checked_progress_ = 0;
  std::array<trace::NameId, schedule::kNumRoutines> names_{}, call_names_{};
  std::optional<trace::Recorder> calls_;  ///< The rank's last calls alone, however much it traces.
};

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<Segment> segment, int group_id,
                                               std::vector<int> members, int my_rank,
                                               const EngineOptions& options) {
  if (group_id < 0 || group_id >= kMaxGroups) {
    return base::unsupported("group id " + std::to_string(group_id) + "; a job has at most " +
                             std::to_string(kMaxGroups) + " groups");
  }
  return make(std::move(segment), group_id, std::move(members), my_rank, options);
}

Result<std::unique_ptr<Engine>> Engine::create_channel(std::shared_ptr<Segment> segment, int sender,
                                                       int receiver, int my_rank,
                                                       const EngineOptions& options) {
  const int id = segment->channel_id(sender, receiver);
  return make(std::move(segment), id, {sender, receiver}, my_rank, options);
}

Result<std::unique_ptr<Engine>> Engine::make(std::shared_ptr<Segment> segment, int group_id,
                                             std::vector<int> members, int my_rank,
                                             const EngineOptions& options) {
  HANJI_RETURN_IF_ERROR(check_members(*segment, members));
  const auto mine = std::find(members.begin(), members.end(), my_rank);
  if (mine == members.end()) {
    return base::invalid_argument("rank " + std::to_string(my_rank) + " is no member of group " +
                                  std::to_string(group_id));
  }
  const auto presence = static_cast<Presence>(segment->rank_state(my_rank).presence.load());
  if (presence == Presence::kAbsent) segment->join(my_rank);
  place_staging(*segment, group_id, members, my_rank);
  const int me = static_cast<int>(mine - members.begin());
  HANJI_RETURN_IF_ERROR(check_alive(*segment, members, options));
  GroupLines lines(segment, group_id, std::move(members), me);
  if (lines.failed(me) != Code::kOk) {
    return base::invalid_argument("group " + std::to_string(group_id) +
                                  " has failed before; make a new one");
  }
  lines.announce_members();
  auto core = std::make_unique<Core>(std::move(segment), std::move(lines), options);
  return std::unique_ptr<Engine>(new Engine(std::move(core)));
}

Engine::Engine(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Engine::~Engine() = default;

Result<uint64_t> Engine::submit(const Call& call) { return core_->submit(call); }
Status Engine::advance() { return core_->advance(); }
Status Engine::check() { return core_->check(); }
bool Engine::done(uint64_t ticket) const { return core_->done(ticket); }
bool Engine::called() const { return core_->called(); }
Status Engine::wait(uint64_t ticket) { return core_->wait(ticket, {}); }
Status Engine::wait(uint64_t ticket, const std::vector<Engine*>& others) {
  return core_->wait(ticket, others);
}
bool Engine::cancel(uint64_t ticket) { return core_->cancel(ticket); }
uint64_t Engine::arrived(uint64_t ticket) const { return core_->arrived(ticket); }
uint64_t Engine::delivered(uint64_t ticket) const { return core_->delivered(ticket); }
void Engine::set_waiting(bool waiting) { core_->set_waiting(waiting); }
bool Engine::traced() const { return core_->traced(); }
uint32_t Engine::epoch() const { return core_->epoch(); }
bool Engine::oversubscribed() const { return core_->oversubscribed(); }
int Engine::rank() const { return core_->rank(); }
int Engine::size() const { return core_->size(); }
const Stats& Engine::stats() const { return core_->stats(); }

}  // namespace hanji::shm
