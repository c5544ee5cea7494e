#include "hanji/launch/internal/echo.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "hanji/base/sigpipe_guard.h"

namespace hanji::launch {
namespace {

constexpr size_t kMaxBacklog = 1 << 20;
constexpr size_t kPiece = 4096;  // PIPE_BUF: a pipe that polls as writable takes so much at once.

void write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // A full disk must not stop training.
    text.remove_prefix(count);
  }
}

}  // namespace

Result<Echo> Echo::create(int log, int to) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return base::from_errno("pipe", errno);
  Echo echo;
  echo.read_end_ = base::Fd(ends[0]);
  echo.write_end_ = base::Fd(ends[1]);
  echo.log_ = log;
  echo.to_ = to;
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return base::from_errno("fcntl", errno);
  return echo;
}

void Echo::pump() {
  read_available();
  write_possible();
}

void Echo::finish(base::Deadline deadline) {
  pump();
  if (left_out_ > 0) keep({});
  while (waiting_for() >= 0 && !deadline.passed()) {
    pollfd poll{to_, POLLOUT, 0};
    ::poll(&poll, 1, deadline.poll_ms());
    write_possible();
  }
}

void Echo::read_available() {
  std::array<char, 64 * 1024> piece;
  while (read_end_.valid()) {
    const ssize_t count = ::read(read_end_.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      read_end_.reset();
      return;
    }
    const std::string_view text(piece.data(), count);
    write_whole(log_, text);
    keep(text);
  }
}

void Echo::keep(std::string_view text) {
  if (to_ < 0) return;
  if (backlog_.size() + text.size() > kMaxBacklog) {
    left_out_ += text.size();
    return;
  }
  if (left_out_ > 0) {
    backlog_ += fmt::format("\n[hanji: {} bytes left out here; the log has them]\n", left_out_);
    left_out_ = 0;
  }
  backlog_ += text;
}

void Echo::write_possible() {
  const base::SigpipeGuard guard;
  size_t written = 0;
  while (written < backlog_.size()) {
    pollfd poll{to_, POLLOUT, 0};
    if (::poll(&poll, 1, 0) <= 0) break;
    const auto piece = std::string_view(backlog_).substr(written, kPiece);
    const ssize_t count = ::write(to_, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) {  // Nobody reads any more; the log goes on.
      to_ = -1;
      backlog_.clear();
      return;
    }
    written += count;
  }
  backlog_.erase(0, written);
}

}  // namespace hanji::launch
