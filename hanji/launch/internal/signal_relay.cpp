#include "hanji/launch/internal/signal_relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "hanji/base/stop_signals.h"

namespace hanji::launch {
namespace {

constexpr int kFree = -1;

/// Where the handler writes. A handler has no other way to know; see SignalRelay on there being
/// only one.
std::atomic<int> relay_fd{kFree};
static_assert(std::atomic<int>::is_always_lock_free);

void relay(int signal) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  // A full pipe holds thousands of signals already.
  [[maybe_unused]] const ssize_t written = ::write(relay_fd.load(), &byte, 1);
  errno = saved;
}

}  // namespace

Result<SignalRelay> SignalRelay::install() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return base::from_errno("pipe", errno);
  SignalRelay relay_now;
  relay_now.read_end_ = base::Fd(ends[0]);
  relay_now.write_end_ = base::Fd(ends[1]);
  int expected = kFree;
  if (!relay_fd.compare_exchange_strong(expected, ends[1])) {
    return base::invalid_argument(
        "another launch of this process forwards signals already: use Signals::kLeave for one");
  }
  struct sigaction action {};
  action.sa_handler = relay;
  action.sa_flags = SA_RESTART;
  for (const int signal : base::obeyed_stop_signals()) {
    ::sigaction(signal, &action, &relay_now.before_[signal]);
  }
  return relay_now;
}

SignalRelay::SignalRelay(SignalRelay&& other) noexcept
    : read_end_(std::move(other.read_end_)),
      write_end_(std::move(other.write_end_)),
      before_(std::exchange(other.before_, {})) {}

SignalRelay::~SignalRelay() {
  if (before_.empty()) return;
  for (const auto& [signal, action] : before_) ::sigaction(signal, &action, nullptr);
  relay_fd.store(kFree);
}

std::optional<int> SignalRelay::take() {
  unsigned char byte = 0;
  if (::read(read_end_.get(), &byte, 1) != 1) return {};
  return byte;
}

}  // namespace hanji::launch
