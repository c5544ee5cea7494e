#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/report/step_timeline.h"

namespace hanji::report::internal {

/// Steps of one rank in a file that trace::write_chrome_trace() has written.
class TraceSteps {
 public:
  /// Errors  those of base::read_file(); corrupt, naming file and line.
  static Result<TraceSteps> open(const std::filesystem::path& path);

  /// A step, counted from 1, and where it lies on the host's clock.
  struct Window {
    double begin = 0;  ///< Seconds.
    double end = 0;
  };
  const std::map<int64_t, Window>& steps() const { return steps_; }
  /// Seconds by which its times may differ from those of rank 0's host; absent: an older trace does not tell.
  std::optional<double> clock_error() const;

  /// What the rank did in `step`, cut to it, in seconds since `origin`; spans of one kind that are closer than
  /// `resolution` are one.
  /// Errors  corrupt, naming file and line.
  Result<std::vector<TimelineSpan>> spans(int64_t step, double origin, double resolution) const;

 private:
  TraceSteps(std::filesystem::path path, std::string text)
      : path_(std::move(path)), text_(std::move(text)) {}

  std::filesystem::path path_;
  std::string text_;
  std::map<int64_t, Window> steps_;
};

}  // namespace hanji::report::internal
