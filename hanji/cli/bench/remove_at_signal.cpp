#include "hanji/cli/bench/remove_at_signal.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

#include "hanji/base/file.h"
#include "hanji/base/status.h"
#include "hanji/base/stop_signals.h"

namespace hanji::cli {
namespace {

/// Where the handler writes, which has no other way to know it.
std::atomic<int> pipe_of_handler{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void pass_to_thread(int signal) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const ssize_t written = ::write(pipe_of_handler.load(), &byte, 1);
  errno = saved;
}

}  // namespace

RemoveAtSignal::RemoveAtSignal(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error(base::from_errno("pipe", errno));
  read_end_ = base::Fd(ends[0]);
  write_end_ = base::Fd(ends[1]);
  pipe_of_handler.store(ends[1]);
  thread_ = std::thread([this] { wait_and_remove(); });
  for (const int signal : base::kStopSignals) {
    if (std::signal(signal, pass_to_thread) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

RemoveAtSignal::~RemoveAtSignal() {
  for (const int signal : base::kStopSignals) {
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
  pipe_of_handler.store(-1);
  write_end_.reset();
  thread_.join();
}

void RemoveAtSignal::wait_and_remove() const {
  unsigned char signal = 0;
  if (::read(read_end_.get(), &signal, 1) != 1) return;
  [[maybe_unused]] const Status removed = base::remove_tree(folder_);
  std::signal(signal, SIG_DFL);
  ::kill(::getpid(), signal);
  while (true) ::pause();  // the other threads find no folder any more, and must not say so
}

}  // namespace hanji::cli
