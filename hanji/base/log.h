#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hanji::base {

/// Lines for people: "2026-11-21T09:40:19.123Z rank 2 warning: text".
///
/// One line is one write(2), so lines of several processes never mix. Line breaks inside a text
/// are written as they are. Nothing is buffered; a line that cannot be written is lost.
/// Thread  any.
class Log {
 public:
  /// `fd` stays the caller's and must outlive the log; -1 is silent.
  Log(int fd, std::string prefix) : fd_(fd), prefix_(std::move(prefix)) {}

  void info(std::string_view text) const { write("", text); }
  void warn(std::string_view text) const { write("warning: ", text); }
  void error(std::string_view text) const { write("error: ", text); }

 private:
  void write(std::string_view level, std::string_view text) const;

  int fd_;
  std::string prefix_;
};

/// "2026-11-21T09:40:19.123Z" for nanoseconds since 1970 (clock.h, wall_ns).
std::string format_time(int64_t wall_ns);

}  // namespace hanji::base
