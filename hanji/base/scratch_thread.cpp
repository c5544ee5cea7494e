#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "hanji/base/limits.h"
#include "hanji/base/scratch_engine.h"

namespace hanji::base {
namespace {

/// Shared with the thread, which may outlive the engine if the disk hangs.
struct Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<uint64_t, Transfer>> waiting;
  std::deque<EndedTransfer> ended;
  bool stops = false;
  bool stopped = false;
};

EndedTransfer carry_out(int fd, uint64_t ticket, Transfer rest, MoveBytes move) {
  EndedTransfer ended{.ticket = ticket};
  while (rest.bytes > 0) {
    const int64_t moved = move(fd, rest);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) ended.error = errno;
    if (moved <= 0) break;
    ended.moved += moved;
    rest.at += moved;
    rest.bytes -= moved;
    rest.memory = std::shared_ptr<std::byte>(rest.memory, rest.memory.get() + moved);
  }
  return ended;
}

void run(const std::shared_ptr<Queue>& queue, int fd, MoveBytes move) {
  std::unique_lock lock(queue->mutex);
  while (true) {
    queue->changed.wait(lock, [&] { return queue->stops || !queue->waiting.empty(); });
    if (queue->waiting.empty()) break;
    auto [ticket, transfer] = std::move(queue->waiting.front());
    queue->waiting.pop_front();
    lock.unlock();
    const EndedTransfer ended = carry_out(fd, ticket, std::move(transfer), move);
    lock.lock();
    queue->ended.push_back(ended);
    queue->changed.notify_all();
  }
  queue->stopped = true;
  queue->changed.notify_all();
}

class ThreadEngine : public TransferEngine {
 public:
  ThreadEngine(int fd, MoveBytes move) : thread_(&run, queue_, fd, move) {}
  ~ThreadEngine() override {
    std::unique_lock lock(queue_->mutex);
    queue_->stops = true;
    queue_->changed.notify_all();
    const bool stopped =
        queue_->changed.wait_for(lock, kEngineEnd, [&] { return queue_->stopped; });
    lock.unlock();
    stopped ? thread_.join() : thread_.detach();
  }

  Status start(uint64_t ticket, Transfer transfer) override {
    const std::lock_guard lock(queue_->mutex);
    queue_->waiting.emplace_back(ticket, std::move(transfer));
    queue_->changed.notify_all();
    return {};
  }

  Result<std::optional<EndedTransfer>> next(const Deadline& deadline) override {
    std::unique_lock lock(queue_->mutex);
    while (queue_->ended.empty() && !deadline.passed()) {
      const auto most =
          std::min<std::chrono::nanoseconds>(deadline.remaining(), std::chrono::hours(1));
      queue_->changed.wait_for(lock, most);
    }
    if (queue_->ended.empty()) return std::optional<EndedTransfer>();
    const EndedTransfer ended = queue_->ended.front();
    queue_->ended.pop_front();
    return std::optional(ended);
  }

 private:
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::thread thread_;
};

}  // namespace

int64_t move_bytes(int fd, const Transfer& rest) {
  const auto bytes = static_cast<size_t>(rest.bytes);
  return rest.writes ? ::pwrite(fd, rest.memory.get(), bytes, rest.at)
                     : ::pread(fd, rest.memory.get(), bytes, rest.at);
}

Result<std::unique_ptr<TransferEngine>> make_thread_engine(int fd, MoveBytes move) {
  try {
    return std::unique_ptr<TransferEngine>(std::make_unique<ThreadEngine>(fd, move));
  } catch (const std::system_error& error) {
    return no_more_processes("a thread for a scratch file", error.code().value());
  }
}

}  // namespace hanji::base
