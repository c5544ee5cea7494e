#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/report/internal/trace_steps.h"

namespace hanji::report::internal {
namespace {

using base::Json;

constexpr size_t kMaxTrace = size_t{512} << 20;

struct TraceEvent {
  std::string name;
  std::string category;
  double begin = 0;
  double end = 0;
};

std::optional<TraceEvent> event_of(std::string_view line) {
  if (line.ends_with(",")) line.remove_suffix(1);
  const auto json = base::parse_json(line, 8, size_t{1} << 16);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto is_number = [&](const char* key) {
    return json->contains(key) && (*json)[key].is_number();
  };
  const bool is_whole = is_number("ts") && is_number("dur") && json->contains("name") &&
                        (*json)["name"].is_string() && json->contains("args") &&
                        (*json)["args"].is_object();
  if (!is_whole) return std::nullopt;
  const double begin = (*json)["ts"].get<double>() * 1e-6;
  const Json category = (*json)["args"].value("category", Json());
  return TraceEvent{(*json)["name"].get<std::string>(),
                    category.is_string() ? category.get<std::string>() : "", begin,
                    begin + (*json)["dur"].get<double>() * 1e-6};
}

/// Absent: none of a step.
std::optional<SpanKind> kind_of(const TraceEvent& event) {
  if (event.category == "data") return SpanKind::kData;
  if (event.category == "skew") return SpanKind::kSkew;
  if (event.category == "communication") return SpanKind::kTransfer;
  if (event.category != "compute") return std::nullopt;
  constexpr std::array kParts = {std::pair{"forward", SpanKind::kForward},
                                 std::pair{"backward", SpanKind::kBackward},
                                 std::pair{"optimizer", SpanKind::kOptimizer}};
  for (const auto& [name, kind] : kParts) {
    if (event.name.starts_with(name)) return kind;
  }
  return SpanKind::kCompute;
}

/// Calls `see(line, number)` for each line that contains `part`.
Status for_lines_with(std::string_view text, std::string_view part,
                      const std::function<Status(std::string_view)>& see) {
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at)) {
    const size_t begin = text.rfind('\n', at) + 1;  // npos + 1 is 0
    const size_t end = std::min(text.find('\n', at), text.size());
    HANJI_RETURN_IF_ERROR(see(text.substr(begin, end - begin)));
    at = end;
  }
  return {};
}

int64_t line_number(std::string_view text, std::string_view line) {
  return std::count(text.data(), line.data(), '\n') + 1;
}

std::vector<TimelineSpan> merged(std::vector<TimelineSpan> spans, double resolution) {
  std::ranges::sort(spans, {}, [](const TimelineSpan& s) { return std::pair(s.kind, s.begin); });
  std::vector<TimelineSpan> kept;
  for (const TimelineSpan& one : spans) {
    if (!kept.empty() && kept.back().kind == one.kind && one.begin - kept.back().end < resolution) {
      kept.back().end = std::max(kept.back().end, one.end);
    } else {
      kept.push_back(one);
    }
  }
  return kept;
}

}  // namespace

Result<TraceSteps> TraceSteps::open(const std::filesystem::path& path) {
  HANJI_ASSIGN_OR_RETURN(std::string text, base::read_file(path, kMaxTrace));
  TraceSteps trace(path, std::move(text));
  constexpr std::string_view kStep = "\"name\":\"ProfilerStep#";
  HANJI_RETURN_IF_ERROR(for_lines_with(trace.text_, kStep, [&](std::string_view line) -> Status {
    const auto event = event_of(line);
    if (!event) {
      return base::corrupt(fmt::format("{}:{}: no event of a trace; let the run write it again",
                                       path.string(), line_number(trace.text_, line)));
    }
    const int64_t before = std::atoll(event->name.c_str() + event->name.find('#') + 1);
    trace.steps_[before + 1] = {event->begin, event->end};
    return {};
  }));
  return trace;
}

std::optional<double> TraceSteps::clock_error() const {
  constexpr std::string_view kClock = "\"clock\":{", kError = "\"error_ns\":";
  const size_t clock = text_.find(kClock), end = text_.find('}', clock);
  const size_t error = text_.find(kError, clock);
  if (clock == text_.npos || error > end) return std::nullopt;
  return static_cast<double>(std::atoll(text_.c_str() + error + kError.size())) * 1e-9;
}

Result<std::vector<TimelineSpan>> TraceSteps::spans(int64_t step, double origin,
                                                    double resolution) const {
  const Window window = steps_.at(step);
  std::vector<TimelineSpan> found;
  const std::string part = fmt::format("\"step\":{}", step - 1);
  HANJI_RETURN_IF_ERROR(for_lines_with(text_, part, [&](std::string_view line) -> Status {
    const size_t after = line.find(part) + part.size();
    if (after < line.size() && line[after] >= '0' && line[after] <= '9') return {};
    const auto event = event_of(line);
    if (!event) {
      return base::corrupt(fmt::format("{}:{}: no event of a trace; let the run write it again",
                                       path_.string(), line_number(text_, line)));
    }
    const auto kind = kind_of(*event);
    const double begin = std::max(event->begin, window.begin);
    const double end = std::min(event->end, window.end);
    if (kind && end > begin) found.push_back({*kind, begin - origin, end - origin});
    return {};
  }));
  return merged(std::move(found), resolution);
}

}  // namespace hanji::report::internal
