#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hanji/train/stop_signal.h"

namespace hanji::cli {

/// "1,200 of 5,000 images, 24 %, 300/s, 12.7 s left".
std::string progress_text(uint64_t done, uint64_t total, double per_second,
                          const std::string& unit);

/// For end_at_signals().
inline constexpr const char* kNothingWritten =
    "hanji: interrupted before the first; nothing was written\n";

/// Until a LongVerb or a launch receives them, stop signals end the process at once with the exit
/// codes of LongVerb: for what comes before anything is written or started.
/// `text`: a line for stderr, which stays in memory.
void end_at_signals(const char* text);

/// What a verb that takes long does beside its work: a line of progress on stderr, which is rewritten
/// every 200 ms on a terminal and added every 10 s elsewhere, and stop signals (base/stop_signals.h),
/// which it receives instead of ending.
///
/// Thread  make it before other threads start; proceed() by one at a time.
class LongVerb {
 public:
  /// `unit`: what is counted, such as "images".
  explicit LongVerb(std::string unit);

  /// Shows what is done. The first call's `done` - 1 were done before.
  /// Result  false after a signal: end, and return exit_code().
  bool proceed(uint64_t done, uint64_t total);

  /// 130 after INT, 75 after another stop signal, else 0.
  int exit_code() const;

 private:
  void show(uint64_t done, uint64_t total, int64_t now);

  std::string unit_;
  bool is_terminal_;
  train::StopSignal signals_;
  int signal_ = 0;
  std::optional<uint64_t> first_;
  int64_t begin_;
  int64_t polled_ = 0;
  int64_t shown_;
};

}  // namespace hanji::cli
