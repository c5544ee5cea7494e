#include "hanji/base/crash_report.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>

namespace hanji::base {
namespace {

constexpr std::array kFatal = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kMaxFrames = 48;
constexpr size_t kMaxBytes = 8 * 1024;

/// A handler has no other way to know where to write.
std::atomic<int> crash_fd{-1};
std::atomic<int> copy_fd{-1};
std::atomic<char> copy_tag{0};
std::array<char, 128> crash_who;
alignas(16) std::array<std::byte, 96 * 1024> crash_stack;

/// Async-signal-safe: the text is put together in place and written at once.
class Text {
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
  void write() {
    const std::string_view words(text_.data() + 1, size_ - 1);
    [[maybe_unused]] ssize_t written = ::write(crash_fd.load(), words.data(), words.size());
    if (copy_fd.load() < 0) return;
    text_[0] = copy_tag.load();
    written = ::send(copy_fd.load(), text_.data(), size_, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

 private:
  std::array<char, kMaxBytes> text_;
  size_t size_ = 1;  ///< Behind the tag of the copy.
};

/// Who raised it by kill(2) gave no address.
void add_headline(Text& text, int signal, const siginfo_t& info) {
  text.add(crash_who.data());
  text.add(" (process ");
  text.add_number(static_cast<uint64_t>(::getpid()), 10);
  text.add(signal == SIGURG ? "): asked where it is" : "): SIG");
  const char* name = ::sigabbrev_np(signal);
  if (signal != SIGURG) text.add(name != nullptr ? name : "?");
  if (info.si_code > 0 && signal != SIGABRT) {
    text.add(" at address 0x");
    text.add_number(reinterpret_cast<uintptr_t>(info.si_addr), 16);
  }
  text.add("; stack of thread ");
  text.add_number(static_cast<uint64_t>(::gettid()), 10);
  text.add(":\n");
}

/// "  #3 /usr/bin/program(main+0x12) [+0x4a12]": behind the name, and behind the module's start.
void add_frame(Text& text, int number, const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  Dl_info info{};
  const bool known = ::dladdr(address, &info) != 0;
  text.add("  #");
  text.add_number(static_cast<uint64_t>(number), 10);
  text.add(" ");
  text.add(known && info.dli_fname != nullptr ? info.dli_fname : "?");
  text.add("(");
  if (known && info.dli_sname != nullptr) {
    text.add(info.dli_sname);
    text.add("+0x");
    text.add_number(at - reinterpret_cast<uintptr_t>(info.dli_saddr), 16);
  }
  text.add(") [+0x");
  text.add_number(known ? at - reinterpret_cast<uintptr_t>(info.dli_fbase) : at, 16);
  text.add("]\n");
}

/// How many of the frames are the handler's own, above the instruction that was interrupted.
int own_frames([[maybe_unused]] std::span<void* const> frames,
               [[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  const auto* interrupted = static_cast<const ucontext_t*>(context);
  const auto at = static_cast<uintptr_t>(interrupted->uc_mcontext.gregs[REG_RIP]);
  const auto found = std::find(frames.begin(), frames.end(), reinterpret_cast<void*>(at));
  if (found != frames.end()) return static_cast<int>(found - frames.begin());
#endif
  return 0;
}

void write_stack(int signal, const siginfo_t& info, const void* context) {
  Text text;
  add_headline(text, signal, info);
  std::array<void*, kMaxFrames> addresses;
  const auto count = static_cast<size_t>(::backtrace(addresses.data(), kMaxFrames));
  const auto frames = std::span<void* const>(addresses).first(count);
  const int first = own_frames(frames, context);
  for (int i = first; i < static_cast<int>(count); ++i) add_frame(text, i - first, frames[i]);
  text.write();
}

void on_fatal(int signal, siginfo_t* info, void* context) {
  write_stack(signal, *info, context);
  // SA_RESETHAND has put back the default, which ends the process once this returns.
  ::raise(signal);
}

void on_question(int signal, siginfo_t* info, void* context) {
  const int before = errno;
  write_stack(signal, *info, context);
  errno = before;
}

bool is_default(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
         now.sa_handler == SIG_DFL;
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*), unsigned flags) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | flags);
  if (is_default(signal)) ::sigaction(signal, &action, nullptr);
}

void keep_copy(CrashCopy copy) {
  const int fresh = copy.fd < 0 ? -1 : ::fcntl(copy.fd, F_DUPFD_CLOEXEC, 0);
  copy_tag = copy.tag;
  const int old = copy_fd.exchange(fresh);
  if (old >= 0) ::close(old);
}

}  // namespace

void report_crashes(int fd, std::string_view who, CrashCopy copy) {
  const size_t size = std::min(who.size(), crash_who.size() - 1);
  std::memcpy(crash_who.data(), who.data(), size);
  crash_who[size] = '\0';
  keep_copy(copy);
  if (crash_fd.exchange(fd) >= 0) return;
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // Loads the unwinder now, as a handler may not allocate.
  // A stack of its own, so that the main thread's overflow is reported too.
  const stack_t stack{crash_stack.data(), 0, crash_stack.size()};
  ::sigaltstack(&stack, nullptr);
  for (const int signal : kFatal) handle(signal, on_fatal, SA_RESETHAND);
  handle(SIGURG, on_question, SA_RESTART);
}

}  // namespace hanji::base
