#include "hanji/base/run_clock.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/base/limits.h"
#include "hanji/base/stop_signals.h"

namespace hanji::base {
namespace {

constexpr std::chrono::milliseconds kTick{200};

RunClock& clock_of_process() {
  static RunClock clock;
  return clock;
}

/// Held by who changes the clock, and during a fork: a copy begins with a whole state.
std::mutex& writing() {
  static std::mutex mutex;
  return mutex;
}

/// A forked copy has no ticking thread.
void register_fork_handlers() {
  static const int registered =
      ::pthread_atfork([] { writing().lock(); }, [] { writing().unlock(); },
                       [] {
                         clock_of_process().stop(now_ns());
                         writing().unlock();
                       });
  static_cast<void>(registered);
}

}  // namespace

int64_t RunClock::count(const State& state, int64_t now_ns) {
  const int64_t passed = std::max<int64_t>(0, now_ns - state.tick_ns);
  return state.counted_ns + (state.ticks ? std::min(passed, kMaxStep) : passed);
}

RunClock::State RunClock::read() const {
  while (true) {
    const uint32_t before = version_.load(std::memory_order_acquire);
    State state;
    state.tick_ns = tick_ns_.load(std::memory_order_acquire);
    state.counted_ns = counted_ns_.load(std::memory_order_acquire);
    state.resumed_ns = resumed_ns_.load(std::memory_order_acquire);
    state.ticks = ticks_.load(std::memory_order_acquire);
    if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) return state;
  }
}

void RunClock::write(const State& state) {
  const uint32_t before = version_.load(std::memory_order_relaxed);
  version_.store(before + 1, std::memory_order_relaxed);
  tick_ns_.store(state.tick_ns, std::memory_order_release);
  counted_ns_.store(state.counted_ns, std::memory_order_release);
  resumed_ns_.store(state.resumed_ns, std::memory_order_release);
  ticks_.store(state.ticks, std::memory_order_release);
  version_.store(before + 2, std::memory_order_release);
}

void RunClock::start(int64_t now_ns) {
  const State state = read();
  write({now_ns, count(state, now_ns), state.resumed_ns, true});
}

void RunClock::tick(int64_t now_ns) {
  const State state = read();
  const bool was_paused = state.ticks && now_ns - state.tick_ns > kMaxStep;
  write({now_ns, count(state, now_ns), was_paused ? now_ns : state.resumed_ns, state.ticks});
}

void RunClock::stop(int64_t now_ns) {
  tick(now_ns);
  State state = read();
  state.ticks = false;
  write(state);
}

int64_t RunClock::at(int64_t now_ns) const { return count(read(), now_ns); }

int64_t RunClock::resumed_ns(int64_t now_ns) const {
  const State state = read();
  return state.ticks && now_ns - state.tick_ns > kMaxStep ? now_ns : state.resumed_ns;
}

int64_t running_ns() { return running_ns(now_ns()); }
int64_t running_ns(int64_t now_ns) { return clock_of_process().at(now_ns); }
int64_t resumed_ns() { return clock_of_process().resumed_ns(now_ns()); }

/// Its thread ends with its last owner.
class PauseWatch::Ticker {
 public:
  Ticker() : process_(::getpid()) {
    thread_ = start_without_stop_signals([this] { run(); });
  }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;
  ~Ticker() {
    if (!is_of_this_process()) {  // it stayed in the other one
      thread_.detach();
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  bool is_of_this_process() const { return process_ == ::getpid(); }

 private:
  void run() {
    change(&RunClock::start);
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kTick, [this] { return ends_; })) {
      change(&RunClock::tick);
    }
    change(&RunClock::stop);
  }
  static void change(void (RunClock::*how)(int64_t)) {
    const std::lock_guard lock(writing());
    (clock_of_process().*how)(now_ns());
  }

  const pid_t process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

Result<PauseWatch> PauseWatch::start() {
  static std::mutex mutex;
  static std::weak_ptr<Ticker> shared;
  register_fork_handlers();
  const std::lock_guard lock(mutex);
  auto ticker = shared.lock();
  if (ticker == nullptr || !ticker->is_of_this_process()) {
    try {
      ticker = std::make_shared<Ticker>();
    } catch (const std::system_error& error) {
      return no_more_processes("start the thread that notices pauses", error.code().value());
    }
    shared = ticker;
  }
  return PauseWatch(std::move(ticker));
}

}  // namespace hanji::base
