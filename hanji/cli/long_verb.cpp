#include "hanji/cli/long_verb.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <iostream>

#include "hanji/base/clock.h"
#include "hanji/base/stop_signals.h"
#include "hanji/base/units.h"
#include "hanji/cli/exit_code.h"

namespace hanji::cli {
namespace {

constexpr int64_t kPollEvery = 20'000'000;  // ns
constexpr int64_t kRewriteEvery = 200'000'000;
constexpr int64_t kAddEvery = 10'000'000'000;

/// What the handler writes, which has no other way to know it.
std::atomic<const char*> text_of_handler{nullptr};
static_assert(std::atomic<const char*>::is_always_lock_free);

void end_process(int signal) {
  const char* text = text_of_handler.load();
  static_cast<void>(!::write(STDERR_FILENO, text, std::strlen(text)));
  ::_exit(stop_code(signal));
}

}  // namespace

void end_at_signals(const char* text) {
  text_of_handler.store(text);
  for (const int signal : base::obeyed_stop_signals()) std::signal(signal, end_process);
}

std::string progress_text(uint64_t done, uint64_t total, double per_second,
                          const std::string& unit) {
  const double left = static_cast<double>(total - done) / std::max(per_second, 1e-9);
  const double percent =
      100 * static_cast<double>(done) / static_cast<double>(std::max<uint64_t>(total, 1));
  return fmt::format("{} of {} {}, {:.0f} %, {}/s, {} left", done, total, unit, percent,
                     base::format_count(static_cast<int64_t>(per_second)),
                     base::format_seconds(left));
}

LongVerb::LongVerb(std::string unit)
    : unit_(std::move(unit)),
      is_terminal_(isatty(STDERR_FILENO) != 0),
      signals_(train::StopSignal::create().or_throw()),
      begin_(base::now_ns()),
      shown_(begin_) {}

void LongVerb::show(uint64_t done, uint64_t total, int64_t now) {
  shown_ = now;
  const double seconds = std::max(1e-9, static_cast<double>(now - begin_) * 1e-9);
  const double rate = static_cast<double>(done - *first_) / seconds;
  const std::string text = progress_text(done, total, rate, unit_);
  std::cerr << (is_terminal_ ? "\r\033[K" : "") << text
            << (is_terminal_ && done < total ? "" : "\n") << std::flush;
}

bool LongVerb::proceed(uint64_t done, uint64_t total) {
  if (!first_) first_ = done - 1;
  const int64_t now = base::now_ns();
  const bool is_last = is_terminal_ && done == total;
  if (is_last || now - shown_ >= (is_terminal_ ? kRewriteEvery : kAddEvery)) show(done, total, now);
  if (now - polled_ < kPollEvery) return true;
  polled_ = now;
  const auto signal = signals_.poll();
  if (!signal) return true;
  signal_ = *signal;
  if (is_terminal_) std::cerr << "\n";
  return false;
}

int LongVerb::exit_code() const { return stop_code(signal_); }

}  // namespace hanji::cli
