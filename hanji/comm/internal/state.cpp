#include "hanji/comm/internal/state.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/base/relax_processor.h"
#include "hanji/base/simd.h"
#include "hanji/base/start_thread.h"
#include "hanji/comm/internal/choose.h"
#include "hanji/cost/select.h"
#include "hanji/shm/call_site.h"
#include "hanji/shm/segment.h"

namespace hanji::comm {
namespace {

constexpr auto kDrain = std::chrono::seconds(10);
constexpr auto kIdle =
    std::chrono::microseconds(100);  // between polls of calls that wait for peers
constexpr auto kLinger = std::chrono::milliseconds(20);  // the thread looks for calls by itself
constexpr int kPollsBeforeIdle = 64;
constexpr int kPollsOfAWaiter = 4096;  // who has nothing else to do: some milliseconds
constexpr int64_t kSmallBytes = 4096;  // moved in less time than a wait is begun

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

int64_t bytes_of(const Request& request) {
  const int64_t input = bytes_of(request.input);
  return request.output.is_same(request.input) ? input : std::max(input, bytes_of(request.output));
}

}  // namespace

std::shared_ptr<GroupState> GroupState::make(std::unique_ptr<Engine> engine, Heap heap,
                                             GroupOptions options,
                                             std::shared_ptr<GroupFamily> family, Divide divide,
                                             Connect connect) {
  std::shared_ptr<GroupState> state(new GroupState(std::move(engine), std::move(heap),
                                                   std::move(options), family, std::move(divide)));
  state->connect_ = std::move(connect);
  const std::lock_guard lock(family->mutex);
  std::erase_if(family->members, [](const auto& member) { return member.expired(); });
  family->members.push_back(state);
  return state;
}

GroupState::GroupState(std::unique_ptr<Engine> engine, Heap heap, GroupOptions options,
                       std::shared_ptr<GroupFamily> family, Divide divide)
    : engine_(std::move(engine)),
      heap_(std::move(heap)),
      options_(std::move(options)),
      family_(std::move(family)),
      divide_(std::move(divide)) {
  base::throw_if_error(base::usable_simd().status());  // reductions begin with HANJI_SIMD
  if (!options_.chooser) options_.chooser = std::make_shared<cost::Chooser>(cost::Rates{});
  if (options_.progress == Progress::kThread) {
    thread_ = base::start_thread("start the thread of group " + options_.name,
                                 [this](const std::stop_token& stop) { drive(stop); });
  }
}

GroupState::~GroupState() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  if (std::uncaught_exceptions() > 0) return;
  const auto limit = std::min<std::chrono::nanoseconds>(kDrain, options_.deadline);
  const auto deadline = base::Deadline::after(limit);
  while (status_.ok() && !idle() && !deadline.passed()) {
    poll(Look::kAtPeers);
    std::this_thread::sleep_for(kIdle);
  }
}

std::shared_ptr<const Choice> GroupState::prepare(const Request& request) {
  const std::lock_guard lock(mutex_);
  base::throw_if_error(status_);
  return kept_choice(request);
}

Submitted GroupState::start(Request& request, const Choice& choice) {
  if (family_->before_call) family_->before_call();
  const std::lock_guard lock(mutex_);
  base::throw_if_error(status_);
  return start_locked(request, choice, {});
}

Submitted GroupState::submit(Request&& request, std::vector<Scattered>&& scattered) {
  if (family_->before_call) family_->before_call();
  const std::lock_guard lock(mutex_);
  return submit_locked(request, std::move(scattered));
}

Submitted GroupState::submit_if_called(Request&& request) {
  const std::lock_guard lock(mutex_);
  if (idle()) note(engine_->check());  // a group without calls looks at nobody else
  base::throw_if_error(status_);
  return idle() && engine_->called() ? submit_locked(request, {}) : Submitted{};
}

Submitted GroupState::submit_locked(Request& request, std::vector<Scattered>&& scattered) {
  base::throw_if_error(status_);
  return start_locked(request, choice_for(request), std::move(scattered));
}

Submitted GroupState::start_locked(Request& request, const Choice& choice,
                                   std::vector<Scattered>&& scattered) {
  const trace::RangeId range = range_of(request);
  const auto ticket = engine_->submit(request, choice);
  if (!ticket.ok()) throw Error(ticket.status().at("group " + options_.name));
  if (scattered.empty() && ends_at_once(request, *ticket)) {
    trace::end_range(range);
    return {++submitted_, *ticket};
  }
  Pending& pending = open_next();
  pending.range = range;
  pending.ticket = *ticket;
  pending.bytes = bytes_of(request);
  if (is_shown()) pending.shown = to_show(request);
  pending.input = std::move(request.input);
  pending.output = std::move(request.output);
  pending.copy_out = std::move(request.copy_out);
  pending.scattered = std::move(scattered);
  caller_ = std::this_thread::get_id();
  ++submitted_;
  wake_thread();
  return {submitted_, *ticket};
}

/// Calls of a group without a recorder are parts of another group's.
trace::RangeId GroupState::range_of(const Request& request) const {
  if (options_.recorder == nullptr || !trace::has_range_tool()) return 0;
  return trace::begin_range(schedule::name_of(request.routine), trace::Category::kCommunication,
                            bytes_of(request));
}

GroupState::Pending& GroupState::open_next() {
  constexpr size_t kFewest = 8;
  if (submitted_ - completed_ == calls_.size()) {
    std::vector<Pending> larger(std::max(kFewest, 2 * calls_.size()));
    for (uint64_t sequence = completed_ + 1; sequence <= submitted_; ++sequence) {
      larger[sequence & (larger.size() - 1)] = std::move(open_call(sequence));
    }
    calls_ = std::move(larger);
  }
  return open_call(submitted_ + 1);
}

void GroupState::fail(const Status& status) {
  const std::lock_guard lock(mutex_);
  note(status);
}

bool GroupState::open_batch(std::shared_ptr<CallBatch> batch) {
  const std::lock_guard lock(mutex_);
  if (batch_) return false;
  batch_ = std::move(batch);
  has_unit_ = true;
  return true;
}

void GroupState::close_batch() {
  const std::lock_guard lock(mutex_);
  has_unit_ = false;
  batch_.reset();
}

std::shared_ptr<CallBatch> GroupState::batch() {
  if (!has_unit_.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard lock(mutex_);
  return batch_;
}

void GroupState::then(uint64_t sequence, OnDone on_done) {
  Status status;
  {
    const std::lock_guard lock(mutex_);
    if (sequence > completed_ && status_.ok()) {
      open_call(sequence).on_done.push_back(std::move(on_done));
      return;
    }
    if (sequence > completed_) status = status_;
  }
  on_done(status);
}

void GroupState::advance() {
  poll(Look::kNo);
  const std::lock_guard lock(mutex_);
  base::throw_if_error(status_);
}

void GroupState::advance_others() {
  // Their errors are told to those who wait for them.
  for (const Sibling& other : siblings()) (void)other.state->engine_->advance();
}

bool GroupState::done(uint64_t sequence) {
  if (sequence <= completed_.load(std::memory_order_acquire)) return true;
  {
    const std::lock_guard lock(mutex_);
    if (finished(sequence)) return true;
  }
  poll(Look::kAtPeers);
  advance_others();
  const std::lock_guard lock(mutex_);
  return finished(sequence);
}

void GroupState::wait(uint64_t sequence) {
  if (sequence <= completed_.load(std::memory_order_acquire)) return;
  std::vector<Notice> notices;
  Status lost;
  {
    std::unique_lock lock(mutex_);
    if (sequence > completed_ && status_.ok()) {
      if (!small_is_done()) wait_long(sequence, lock);
      notices = retire();
    }
    if (sequence > completed_) lost = status_;
  }
  notify(notices);
  base::throw_if_error(lost);
}

Stats GroupState::stats() {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.busy_ns = engine_->busy_ns();
  if (!thread_.joinable()) stats.times = engine_->times();
  stats.operations -= uncounted_.operations;
  stats.bytes -= uncounted_.bytes;
  stats.wire_bytes = engine_->wire_bytes() - uncounted_.wire_bytes;
  stats.network_bytes = engine_->network_bytes() - uncounted_.network_bytes;
  return stats;
}

void GroupState::run_uncounted(const std::function<void()>& calls) {
  wait(sequence());
  const Stats before = stats();
  calls();
  const Stats after = stats();
  const std::lock_guard lock(mutex_);
  uncounted_.operations += after.operations - before.operations;
  uncounted_.bytes += after.bytes - before.bytes;
  uncounted_.wire_bytes += after.wire_bytes - before.wire_bytes;
  uncounted_.network_bytes += after.network_bytes - before.network_bytes;
}

uint64_t GroupState::sequence() {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

void GroupState::drive(const std::stop_token& stop) {
  int idle_polls = 0;
  int64_t worked_ns = 0;
  while (!stop.stop_requested()) {
    const bool lingers = base::now_ns() - worked_ns < std::chrono::nanoseconds(kLinger).count();
    if (await_work(stop, lingers)) {
      idle_polls = poll_or_rest(idle_polls, kPollsBeforeIdle);
      worked_ns = base::now_ns();
    }
  }
}

// Waking this thread costs the submitting thread more than a small call does, so it wakes by itself
// while calls follow each other.
bool GroupState::await_work(const std::stop_token& stop, bool lingers) {
  std::unique_lock lock(mutex_);
  const auto has_work = [this] { return status_.ok() && !idle() && waiters_ == 0; };
  if (has_work()) return true;
  if (lingers) {
    (void)changed_.wait_for(lock, stop, kIdle, has_work);
  } else {
    asleep_ = true;
    (void)changed_.wait(lock, stop, has_work);
    asleep_ = false;
  }
  return has_work();
}

void GroupState::wake_thread() {
  if (asleep_ && waiters_ == 0) changed_.notify_all();
}

bool GroupState::poll(Look look) {
  std::vector<Notice> notices;
  bool ended = false;
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok() || idle()) return false;
    const uint64_t before = completed_;
    note(engine_->advance());
    if (look == Look::kAtPeers) note(engine_->check());
    notices = retire();
    ended = completed_ != before || !status_.ok();
  }
  notify(notices);
  return ended;
}

const Choice& GroupState::choice_for(const Request& request) {
  if (!request.steps) return *kept_choice(request);
  own_steps_ = chosen(request);
  return own_steps_;
}

const ChoiceTable::Entry& GroupState::kept_choice(const Request& request) {
  if (const auto* found = choices_.find(request)) return *found;
  return choices_.insert(request, chosen(request));
}

Choice GroupState::chosen(const Request& request) {
  auto choice = choose(request, *engine_, options_.bits, *options_.chooser);
  if (!choice.ok()) throw Error(choice.status().at("group " + options_.name));
  return std::move(*choice);
}

// A small call that nobody overtakes ends here: it costs less than to keep and to drive it.
bool GroupState::ends_at_once(const Request& request, uint64_t ticket) {
  if (!idle() || request.copy_out.defined()) return false;
  const int64_t bytes = bytes_of(request);
  if (bytes > kSmallBytes) return false;
  bool done = false;
  for (int polls = engine_->polls_at_once(); !done && polls > 0; --polls) {
    note(engine_->advance());  // tells too what went wrong when the call was submitted
    done = engine_->done(ticket);
    if (!done) base::relax_processor();
  }
  if (!done) return false;
  complete(bytes);
  return true;
}

bool GroupState::small_is_done() {
  const Pending& pending = open_call(submitted_);
  if (submitted_ != completed_ + 1 || pending.bytes > kSmallBytes) return false;
  note(engine_->advance());
  return engine_->done(pending.ticket);
}

void GroupState::wait_long(uint64_t sequence, std::unique_lock<std::mutex>& lock) {
  const int64_t start_ns = base::now_ns();
  if (is_shown()) {
    open_call(sequence).shown.operation = sequence;
    shm::begin_message_wait(*heap_.segment(), heap_.rank(), shown_group(),
                            open_call(sequence).shown);
  }
  thread_.joinable() ? drive_for_thread(sequence, lock) : drive_until(sequence);
  if (is_shown()) shm::end_message_wait(*heap_.segment(), heap_.rank());
  stats_.wait_ns += base::now_ns() - start_ns;
}

// Flags of shared memory show themselves who waits for whom.
bool GroupState::is_shown() const { return !engine_->shares_memory() && heap_.segment(); }

shm::MessageCall GroupState::to_show(const Request& request) const {
  return {.routine = request.routine,
          .dtype = request.dtype,
          .op = request.op,
          .receives = request.routine == schedule::Routine::kSend && engine_->rank() == 1,
          .call_site =
              heap_.segment()->call_sites().intern(heap_.rank(), request.call_site, request.label),
          .root = request.root,
          .tag = request.tag,
          .count = request.count};
}

const shm::MessageGroup& GroupState::shown_group() {
  if (shown_group_) return *shown_group_;
  std::vector<int> ranks = job_ranks_;
  if (ranks.empty()) {
    ranks.resize(engine_->size());
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  return shown_group_.emplace(options_.name, ranks);
}

// The waiting thread is idle and awake; the group's thread would have to be woken.
void GroupState::drive_for_thread(uint64_t sequence, std::unique_lock<std::mutex>& lock) {
  ++waiters_;
  int idle_polls = 0;
  while (sequence > completed_ && status_.ok()) {
    lock.unlock();
    idle_polls = poll_or_rest(idle_polls, kPollsOfAWaiter);
    lock.lock();
  }
  --waiters_;
  if (!idle()) wake_thread();
}

int GroupState::poll_or_rest(int idle_polls, int patience) {
  const bool idle = idle_polls >= patience;
  idle_polls = poll(idle ? Look::kAtPeers : Look::kNo) ? 0 : idle_polls + 1;
  if (idle) {
    std::this_thread::sleep_for(kIdle);
  } else {
    std::this_thread::yield();
  }
  return idle_polls;
}

void GroupState::drive_until(uint64_t sequence) {
  const std::vector<Sibling> others = siblings();
  std::vector<Engine*> engines;
  for (const Sibling& other : others) engines.push_back(other.state->engine_.get());
  note(engine_->wait(open_call(sequence).ticket, engines));
}

std::vector<GroupState::Sibling> GroupState::siblings() {
  std::vector<Sibling> found;
  add_siblings(*family_, found);
  if (const auto beside = family_->beside.lock()) add_siblings(*beside, found);
  return found;
}

void GroupState::add_siblings(GroupFamily& family, std::vector<Sibling>& found) {
  const std::lock_guard lock(family.mutex);
  for (const auto& member : family.members) {
    Sibling other{member.lock(), {}};
    if (!other.state || other.state.get() == this) continue;
    other.lock = std::unique_lock(other.state->mutex_, std::try_to_lock);
    // A group that another thread drives is left alone: it may have to submit there meanwhile.
    if (!other.lock || other.state->thread_.joinable() || other.state->idle()) continue;
    if (other.state->caller_ == std::this_thread::get_id()) found.push_back(std::move(other));
  }
}

void GroupState::notify(const std::vector<Notice>& notices) {
  for (const Notice& notice : notices) notice.on_done(notice.status);
}

bool GroupState::finished(uint64_t sequence) const {
  if (sequence <= completed_) return true;
  base::throw_if_error(status_);
  return false;
}

void GroupState::note(const Status& status) {
  if (status_.ok() && !status.ok()) status_ = verdict_or(status).at("group " + options_.name);
}

/// A connection that is closed tells less than the word that ends the job. Without a watchdog nobody tells it.
Status GroupState::verdict_or(const Status& status) const {
  const bool has_looked = engine_->shares_memory() || engine_->delegates();
  if (status.code() != Code::kPeerLost || has_looked) return status;
  const auto& segment = family_->segment ? family_->segment : heap_.segment();
  if (!family_->segment && segment->pid(heap_.rank()) == 0) return status;
  const auto patience = base::Deadline::after(kVerdictTime);
  while (!segment->aborted() && !patience.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return segment->aborted() ? segment->abort_status() : status;
}

std::vector<GroupState::Notice> GroupState::retire() {
  std::vector<Notice> notices;
  const auto move_notices = [&notices](Pending& pending, const Status& status) {
    for (OnDone& told : std::exchange(pending.on_done, {})) {
      notices.push_back({std::move(told), status});
    }
  };
  while (status_.ok() && !idle() && engine_->done(open_call(completed_ + 1).ticket)) {
    Pending& first = open_call(completed_ + 1);
    finish(first);
    trace::end_range(first.range);
    complete(first.bytes);
    move_notices(first, {});
    first = {};
  }
  if (!status_.ok()) {
    // The calls that are lost keep their tensors: a late peer may still write to them.
    for (uint64_t sequence = completed_ + 1; sequence <= submitted_; ++sequence) {
      move_notices(open_call(sequence), status_);
    }
  }
  return notices;
}

void GroupState::complete(int64_t bytes) {
  ++stats_.operations;
  stats_.bytes += bytes;
  completed_.store(completed_ + 1, std::memory_order_release);
}

void GroupState::finish(const Pending& pending) {
  for (const Scattered& part : pending.scattered) {
    const at::NoGradGuard no_grad;
    at::Tensor(part.to).copy_(part.from);
  }
  if (pending.copy_out.defined()) {
    const at::NoGradGuard no_grad;
    at::Tensor(pending.copy_out).copy_(pending.output);
  }
}

}  // namespace hanji::comm
