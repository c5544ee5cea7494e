#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <unordered_map>

#include "hanji/base/scratch_engine.h"

namespace hanji::base {
namespace {

constexpr unsigned kEntries = 64;
constexpr int64_t kMaxRequestBytes = int64_t{1}
                                     << 30;  // of one request; the kernel's limit is 2^31

class RingEngine : public TransferEngine {
 public:
  explicit RingEngine(int fd) : fd_(fd) {}
  ~RingEngine() override {
    const Deadline deadline = Deadline::after(kEngineEnd);
    while (!open_.empty()) {
      const auto ended = next(deadline);
      if (ended.ok() && *ended) continue;
      new std::unordered_map<uint64_t, Open>(std::move(open_));  // the kernel may still write there
      break;
    }
    if (made_) ::io_uring_queue_exit(&ring_);
  }

  Status make() {
    const int error = ::io_uring_queue_init(kEntries, &ring_, 0);
    if (error < 0) return from_errno("io_uring_setup", -error);
    made_ = true;
    return {};
  }

  Status start(uint64_t ticket, Transfer transfer) override {
    const auto place = open_.emplace(ticket, Open{std::move(transfer), 0}).first;
    const Status status = submit(ticket, place->second);
    if (!status.ok()) open_.erase(place);
    return status;
  }

  Result<std::optional<EndedTransfer>> next(const Deadline& deadline) override {
    while (true) {
      io_uring_cqe* entry = nullptr;
      const int error = wait(&entry, deadline);
      if (error == -ETIME || error == -EAGAIN) {
        if (deadline.passed()) return std::optional<EndedTransfer>();
        continue;
      }
      if (error == -EINTR) continue;
      if (error < 0) return from_errno("io_uring_enter", -error);
      const uint64_t ticket = entry->user_data;
      const int result = entry->res;
      ::io_uring_cqe_seen(&ring_, entry);
      HANJI_ASSIGN_OR_RETURN(const auto ended, note(ticket, result));
      if (ended) return ended;
    }
  }

 private:
  struct Open {
    Transfer transfer;
    int64_t moved = 0;
  };

  int wait(io_uring_cqe** entry, const Deadline& deadline) {
    if (::io_uring_peek_cqe(&ring_, entry) == 0) return 0;
    const int64_t most = int64_t{3600} * 1'000'000'000;
    const int64_t left = std::min<int64_t>(deadline.remaining().count(), most);
    __kernel_timespec time{left / 1'000'000'000, left % 1'000'000'000};
    return ::io_uring_wait_cqe_timeout(&ring_, entry, &time);
  }

  Status submit(uint64_t ticket, const Open& open) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) return internal("io_uring: no place in the submission queue");
    const Transfer& whole = open.transfer;
    std::byte* memory = whole.memory.get() + open.moved;
    const auto bytes = static_cast<unsigned>(std::min(whole.bytes - open.moved, kMaxRequestBytes));
    const auto at = static_cast<uint64_t>(whole.at + open.moved);
    if (whole.writes) {
      ::io_uring_prep_write(entry, fd_, memory, bytes, at);
    } else {
      ::io_uring_prep_read(entry, fd_, memory, bytes, at);
    }
    entry->user_data = ticket;
    int submitted = 0;
    do {
      submitted = ::io_uring_submit(&ring_);
    } while (submitted == -EINTR || submitted == -EAGAIN);
    return submitted < 0 ? from_errno("io_uring_enter", -submitted) : Status();
  }

  /// A request may end early: then the rest follows.
  Result<std::optional<EndedTransfer>> note(uint64_t ticket, int result) {
    const auto place = open_.find(ticket);
    if (place == open_.end()) return std::optional<EndedTransfer>();
    Open& open = place->second;
    if (result > 0) open.moved += result;
    const bool again = result == -EINTR || result == -EAGAIN;
    if (again || (result > 0 && open.moved < open.transfer.bytes)) {
      HANJI_RETURN_IF_ERROR(submit(ticket, open));
      return std::optional<EndedTransfer>();
    }
    const EndedTransfer ended{ticket, open.moved, result < 0 ? -result : 0};
    open_.erase(place);
    return std::optional(ended);
  }

  int fd_;
  io_uring ring_{};
  bool made_ = false;
  std::unordered_map<uint64_t, Open> open_;
};

}  // namespace

Result<std::unique_ptr<TransferEngine>> make_ring_engine(int fd) {
  auto engine = std::make_unique<RingEngine>(fd);
  HANJI_RETURN_IF_ERROR(engine->make());
  return std::unique_ptr<TransferEngine>(std::move(engine));
}

}  // namespace hanji::base
