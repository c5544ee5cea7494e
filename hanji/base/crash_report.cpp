#include "hanji/base/crash_report.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace hanji::base {
namespace {

constexpr std::array kFatal = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kMaxFrames = 64;

/// A handler has no other way to know where to write.
std::atomic<int> crash_fd{-1};
std::array<char, 128> crash_who;
alignas(16) std::array<std::byte, 64 * 1024> crash_stack;

/// Async-signal-safe: a line is put together in place and written at once.
class Line {
 public:
  void add(std::string_view text) {
    const size_t size = std::min(text.size(), text_.size() - size_);
    std::memcpy(text_.data() + size_, text.data(), size);
    size_ += size;
  }
  void add_number(uint64_t value, unsigned radix) {
    std::array<char, 20> digits;
    size_t at = digits.size();
    do {
      digits[--at] = "0123456789abcdef"[value % radix];
      value /= radix;
    } while (value != 0);
    add({digits.data() + at, digits.size() - at});
  }
  void write(int fd) const {
    [[maybe_unused]] const ssize_t written = ::write(fd, text_.data(), size_);
  }

 private:
  std::array<char, 512> text_;
  size_t size_ = 0;
};

/// Who raised it by kill(2) gave no address.
void write_headline(int fd, int signal, const siginfo_t& info) {
  Line line;
  line.add(crash_who.data());
  line.add(" (process ");
  line.add_number(static_cast<uint64_t>(::getpid()), 10);
  line.add("): SIG");
  const char* name = ::sigabbrev_np(signal);
  line.add(name != nullptr ? name : "?");
  if (info.si_code > 0 && signal != SIGABRT) {
    line.add(" at address 0x");
    line.add_number(reinterpret_cast<uintptr_t>(info.si_addr), 16);
  }
  line.add("; stack of thread ");
  line.add_number(static_cast<uint64_t>(::gettid()), 10);
  line.add(":\n");
  line.write(fd);
}

void on_fatal(int signal, siginfo_t* info, void*) {
  const int fd = crash_fd.load();
  write_headline(fd, signal, *info);
  std::array<void*, kMaxFrames> frames;
  ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), kMaxFrames), fd);
  // SA_RESETHAND has put back the default, which ends the process once this returns.
  ::raise(signal);
}

bool is_default(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
         now.sa_handler == SIG_DFL;
}

}  // namespace

void report_crashes(int fd, std::string_view who) {
  const size_t size = std::min(who.size(), crash_who.size() - 1);
  std::memcpy(crash_who.data(), who.data(), size);
  crash_who[size] = '\0';
  if (crash_fd.exchange(fd) >= 0) return;
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // Loads the unwinder now, as a handler may not allocate.
  // A stack of its own, so that the main thread's overflow is reported too.
  const stack_t stack{crash_stack.data(), 0, crash_stack.size()};
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fatal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  for (const int signal : kFatal) {
    if (is_default(signal)) ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace hanji::base
