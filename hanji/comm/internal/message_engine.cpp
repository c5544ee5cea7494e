#include "hanji/comm/internal/message_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "hanji/base/start_thread.h"
#include "hanji/comm/internal/record.h"

namespace hanji::comm {
namespace {

constexpr int kPollsBeforeYield = 64;
constexpr auto kLookAtOthers = std::chrono::microseconds(200);

}  // namespace

MessageEngine::MessageEngine(std::unique_ptr<Wire> wire, const GroupOptions& options,
                             std::vector<int> order)
    : wire_(std::move(wire)),
      names_(options.rank_names),
      order_(std::move(order)),
      deadline_(options.deadline),
      recorder_(options.recorder),
      group_(options.id) {
  if (!wire_->blocks()) return;
  thread_ = base::start_thread("start the thread of group " + options.name, [this] { serve(); });
}

MessageEngine::~MessageEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  // Memory that a late peer may still write to is never used again.
  if (open_ && !wire_->abandon()) (void)open_.release();
}

Result<uint64_t> MessageEngine::submit(const Request& request, const Choice& choice) {
  if (choice.steps) HANJI_RETURN_IF_ERROR(check_steps(*choice.steps, rank(), request.op));
  HANJI_RETURN_IF_ERROR(wire_->check_caller());
  const std::lock_guard lock(mutex_);
  if (!status_.ok()) return status_;
  waiting_.push_back({request, choice, ++submitted_});
  if (thread_.joinable()) {
    changed_.notify_all();
  } else if (open_next()) {
    finish(run_open());  // an error is told by advance()
  }
  return submitted_;
}

Status MessageEngine::advance() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) {
    while (status_.ok() && open_next()) {
      const uint64_t before = completed_;
      finish(run_open());
      if (completed_ == before) break;
    }
  }
  return status_;
}

bool MessageEngine::done(uint64_t ticket) const {
  const std::lock_guard lock(mutex_);
  return ticket <= completed_;
}

Status MessageEngine::check() {
  HANJI_RETURN_IF_ERROR(advance());
  const std::lock_guard lock(mutex_);
  // A wire that blocks keeps the deadline itself.
  if (!thread_.joinable() && open_ && open_until_.passed()) finish(late());
  return status_;
}

Status MessageEngine::wait(uint64_t ticket, std::span<Engine* const> others) {
  {
    const std::lock_guard lock(mutex_);
    clock_.begin_wait();
  }
  const Status status =
      thread_.joinable() ? wait_for_thread(ticket, others) : poll_until(ticket, others);
  const std::lock_guard lock(mutex_);
  clock_.end_wait();
  return status;
}

Status MessageEngine::poll_until(uint64_t ticket, std::span<Engine* const> others) {
  for (int polls = 1; !done(ticket); ++polls) {
    if (polls % kPollsBeforeYield == 0) {
      HANJI_RETURN_IF_ERROR(check());
      std::this_thread::yield();
    } else {
      HANJI_RETURN_IF_ERROR(advance());
    }
    // Their errors are told to those who wait for them.
    for (Engine* other : others) (void)other->advance();
  }
  return {};
}

Status MessageEngine::wait_for_thread(uint64_t ticket, std::span<Engine* const> others) {
  const auto over = [&] { return ticket <= completed_ || !status_.ok(); };
  std::unique_lock lock(mutex_);
  while (!others.empty() && !changed_.wait_for(lock, kLookAtOthers, over)) {
    lock.unlock();
    for (Engine* other : others) (void)other->advance();
    lock.lock();
  }
  changed_.wait(lock, over);
  return ticket <= completed_ ? Status() : status_;
}

int64_t MessageEngine::busy_ns() const {
  const std::lock_guard lock(mutex_);
  return busy_ns_;
}

std::optional<CallTimes> MessageEngine::times() const {
  const std::lock_guard lock(mutex_);
  return clock_.times();
}

int64_t MessageEngine::network_bytes() const {
  const std::lock_guard lock(mutex_);
  return network_bytes_;
}

void MessageEngine::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_ || !status_.ok()) return;
    open_next();
    lock.unlock();
    const auto ended = run_open();
    lock.lock();
    finish(ended);
    changed_.notify_all();
  }
}

bool MessageEngine::open_next() {
  if (open_) return true;
  if (waiting_.empty()) return false;
  open_ = std::make_unique<MessageCall>(*wire_, names_, std::move(waiting_.front()));
  open_until_ = base::Deadline::after(limit());
  wire_->keep(open_until_);
  waiting_.pop_front();
  return true;
}

std::optional<Status> MessageEngine::run_open() {
  try {
    while (!open_->advance()) {
      if (!wire_->blocks()) return std::nullopt;
    }
    return Status();
  } catch (const Error& error) {
    if (error.code() == Code::kTimeout) return late();
    return error.code() == Code::kPeerLost ? lost(error) : explain(error);
  }
}

void MessageEngine::finish(const std::optional<Status>& ended) {
  if (!ended) return;
  const int64_t now = base::now_ns();
  busy_ns_ += now - open_->start_ns();
  if (!ended->ok()) {
    status_ = *ended;
    return;
  }
  const CallParts parts = clock_.add(open_->start_ns(), open_->agreed_ns(), now);
  record_parts(recorder_, open_->request(), parts);
  record_call(recorder_, open_->request(), {open_->start_ns(), open_->sequence(), size(), group_});
  network_bytes_ += open_->sent_bytes();
  completed_ = open_->sequence();
  open_.reset();
}

std::chrono::nanoseconds MessageEngine::limit() const {
  const auto own = open_->request().deadline;
  return own.count() > 0 ? own : deadline_;
}

std::string MessageEngine::awaited() const {
  std::vector<std::string> ranks;
  for (const int rank : open_->waits_for()) ranks.push_back(names_.of(rank));
  return fmt::format("{}", fmt::join(ranks, ", "));
}

Status MessageEngine::late() const {
  const double seconds = std::chrono::duration<double>(limit()).count();
  const std::string ranks = awaited();
  std::string what;
  if (open_->agreed()) {
    what = fmt::format("all ranks called it, but not all bytes came within {} s", seconds);
    what += ranks.empty() ? fmt::format("; {} does not tell from whom", wire_->name())
                          : fmt::format("; it waits for rank {}", ranks);
  } else {
    what = fmt::format("no call came within {} s from absent ranks: {}", seconds,
                       ranks.empty() ? "at least one" : ranks);
  }
  return explain(Error(base::timeout(
      what + "; if they are slow and not stuck, set a longer deadline of the call or its group")));
}

Status MessageEngine::lost(const Error& error) const {
  const std::string ranks = awaited();
  return explain(Error(base::peer_lost(
      fmt::format("while it waited for {}: {}; who closes a connection has ended, or has given up "
                  "a call at its "
                  "deadline: the logs of the ranks tell",
                  ranks.empty() ? "the other ranks" : "rank " + ranks, error.what()))));
}

/// A mismatch names ranks and calls itself, in the same words on all ranks.
Status MessageEngine::explain(const Error& error) const {
  const Status status(error.code(), error.what());
  if (status.code() == Code::kMismatch) return status;
  const auto routine = open_->request().routine;
  const bool receives = routine == schedule::Routine::kSend && rank() == 1;
  return status.at(fmt::format("rank {} of {}: {} at {}", names_.of(rank()), size(),
                               receives ? "recv" : schedule::name_of(routine), open_->where()));
}

}  // namespace hanji::comm
