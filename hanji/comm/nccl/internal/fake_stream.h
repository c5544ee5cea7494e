#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace hanji::comm::nccl::fake {

/// A stream of a device that is none: what is added runs in that order on a thread of its own,
/// while the thread that added it continues.
///
/// Thread  any.
class Stream {
 public:
  Stream() : thread_([this](const std::stop_token& stop) { run(stop); }) {}
  /// Runs what was added.
  ~Stream() {
    thread_.request_stop();
    thread_.join();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    works_.push_back(std::move(work));
    ++added_;
    changed_.notify_all();
  }
  /// The point after all that was added so far.
  uint64_t mark() {
    const std::lock_guard lock(mutex_);
    return added_;
  }
  bool passed(uint64_t mark) {
    const std::lock_guard lock(mutex_);
    return done_ >= mark;
  }
  void wait(uint64_t mark) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= mark; });
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return !works_.empty(); }) || !works_.empty()) {
      const auto work = std::move(works_.front());
      works_.pop_front();
      lock.unlock();
      work();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> works_;
  uint64_t added_ = 0;
  uint64_t done_ = 0;
  std::jthread thread_;
};

}  // namespace hanji::comm::nccl::fake
