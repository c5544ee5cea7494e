#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <stop_token>
#include <thread>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/base/socket.h"
#include "hanji/base/start_thread.h"
#include "hanji/base/tcp.h"
#include "hanji/topology/internal/busy_links.h"
#include "hanji/topology/internal/core_kernels.h"

namespace hanji::topology::internal {
namespace {

using namespace std::chrono_literals;

constexpr auto kWarmUp = 20ms, kCounted = 100ms, kStart = 2000ms;
constexpr int64_t kPiece = 1 << 20;           // of a copy, so that counting is exact to so many
constexpr size_t kMessage = size_t{1} << 17;  // of a write to a socket

/// A link and its threads. Failing, it counts no more and says why.
class BusyLink {
 public:
  BusyLink() = default;
  BusyLink(const BusyLink&) = delete;
  BusyLink& operator=(const BusyLink&) = delete;
  ~BusyLink() { stop(); }

  void copy_on(int cpu, int64_t bytes) {
    threads_.push_back(
        base::start_thread("measuring memory", [=, this](const std::stop_token& stop) {
          failure_ = copy(stop, cpu, bytes);
          has_begun_ = true;
        }));
  }

  void stream(std::pair<base::Fd, base::Fd> ends) {
    ends_ = std::move(ends);
    threads_.push_back(base::start_thread("measuring sockets", [this](const std::stop_token& stop) {
      const std::vector<char> bytes(kMessage, 1);
      while (!stop.stop_requested() &&
             ::send(ends_.first.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
      }
    }));
    threads_.push_back(base::start_thread("measuring sockets", [this](const std::stop_token&) {
      std::vector<char> bytes(kMessage);
      for (ssize_t count = 0;
           (count = ::recv(ends_.second.get(), bytes.data(), bytes.size(), 0)) > 0;) {
        bytes_ += count;
        has_begun_ = true;
      }
    }));
  }

  /// Ends the threads; a socket that is shut down ends a send and a receive that wait.
  void stop() {
    for (std::jthread& one : threads_) one.request_stop();
    for (const base::Fd* end : {&ends_.first, &ends_.second}) {
      if (end->valid()) ::shutdown(end->get(), SHUT_RDWR);
    }
    threads_.clear();
  }

  bool has_begun() const { return has_begun_; }
  int64_t bytes() const { return bytes_; }
  /// Order: after stop().
  const Status& failure() const { return failure_; }

 private:
  Status copy(const std::stop_token& stop, int cpu, int64_t bytes) {
    HANJI_RETURN_IF_ERROR(pin_to(cpu));
    const auto make = [&] { return std::unique_ptr<char[]>(new (std::nothrow) char[bytes]); };
    const auto from = make(), to = make();
    if (!from || !to) return base::out_of_memory("no memory for the buffers of a copy");
    std::memset(from.get(), 1, static_cast<size_t>(bytes));
    std::memset(to.get(), 0, static_cast<size_t>(bytes));
    has_begun_ = true;
    for (int64_t at = 0; !stop.stop_requested(); at = at + 2 * kPiece <= bytes ? at + kPiece : 0) {
      const int64_t piece = std::min(kPiece, bytes);
      std::memcpy(to.get() + at, from.get() + at, static_cast<size_t>(piece));
      bytes_ += piece;
    }
    return {};
  }

  std::pair<base::Fd, base::Fd> ends_;
  std::atomic<int64_t> bytes_ = 0;
  std::atomic<bool> has_begun_ = false;
  Status failure_;
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

Status make_blocking(int socket) {
  const int flags = ::fcntl(socket, F_GETFL);
  const bool is_set = flags >= 0 && ::fcntl(socket, F_SETFL, flags & ~O_NONBLOCK) == 0;
  return is_set ? Status() : base::from_errno("a socket of this host", errno);
}

Result<std::pair<base::Fd, base::Fd>> loopback_pair() {
  HANJI_ASSIGN_OR_RETURN(const base::Fd listener, base::listen_tcp({"127.0.0.1", 0}));
  HANJI_ASSIGN_OR_RETURN(const base::HostPort place, base::local_place(listener.get()));
  HANJI_ASSIGN_OR_RETURN(base::Fd near,
                         base::connect_tcp(place, "", base::Deadline::after(kStart)));
  HANJI_RETURN_IF_ERROR(base::wait_readable(listener.get(), base::Deadline::after(kStart)));
  HANJI_ASSIGN_OR_RETURN(base::Fd far, base::accept_tcp(listener.get()));
  HANJI_RETURN_IF_ERROR(make_blocking(near.get()));
  HANJI_RETURN_IF_ERROR(make_blocking(far.get()));
  return std::pair(std::move(near), std::move(far));
}

Status begin_link(SharedLink kind, int cpu, int64_t bytes, BusyLink& link) {
  if (kind == SharedLink::kMemory) {
    link.copy_on(cpu, bytes);
    return {};
  }
  auto ends =
      kind == SharedLink::kUnix ? base::socket_pair(base::SocketKind::kStream) : loopback_pair();
  if (!ends.ok()) return ends.status();
  link.stream(*std::move(ends));
  return {};
}

void sleep_for(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

Result<std::vector<double>> count_bytes(std::deque<BusyLink>& links) {
  const auto deadline = base::Deadline::after(kStart);
  for (const BusyLink& one : links) {
    while (!one.has_begun() && !deadline.passed()) sleep_for(1ms);
  }
  sleep_for(kWarmUp);
  std::vector<int64_t> before;
  for (const BusyLink& one : links) before.push_back(one.bytes());
  const int64_t begin = base::now_ns();
  sleep_for(kCounted);
  std::vector<double> rates;
  const double seconds = static_cast<double>(base::now_ns() - begin) * 1e-9;
  for (size_t i = 0; i < links.size(); ++i) {
    rates.push_back(static_cast<double>(links[i].bytes() - before[i]) / seconds);
  }
  for (BusyLink& one : links) one.stop();
  for (size_t i = 0; i < links.size(); ++i) {
    HANJI_RETURN_IF_ERROR(links[i].failure());
    if (rates[i] <= 0)
      return base::timeout("a link moved nothing in a tenth of a second; are cores busy?");
  }
  return rates;
}

}  // namespace

Result<std::vector<double>> rates_at_once(const std::vector<SharedLink>& links,
                                          const std::vector<int>& cpus, int64_t bytes) {
  std::deque<BusyLink> busy;
  try {
    for (size_t i = 0; i < links.size(); ++i) {
      const int cpu = cpus.empty() ? 0 : cpus[i % cpus.size()];
      HANJI_RETURN_IF_ERROR(begin_link(links[i], cpu, bytes, busy.emplace_back()));
    }
  } catch (const Error& error) {
    return Status(error.code(), error.what());
  }
  return count_bytes(busy);
}

}  // namespace hanji::topology::internal
