#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hanji/base/units.h"
#include "hanji/report/internal/page_charts.h"
#include "hanji/report/internal/svg.h"

namespace hanji::report::internal {
namespace {

constexpr double kTimeLeft = 70, kTimeWidth = 640;
constexpr double kBar = 22, kCalls = 6, kRowHeight = 38;
constexpr double kLetter = 12;  // Least width of a bar with a letter in it,
constexpr double kWord = 64;    // and with a word.

std::string_view class_of(SpanKind kind) {
  constexpr std::array<std::string_view, kNumSpanKinds> kClasses = {
      "forward", "forward", "backward", "optimizer", "data", "transfer", "skew"};
  return kClasses[static_cast<size_t>(kind)];
}

bool is_filled(SpanKind kind) { return kind <= SpanKind::kOptimizer; }

/// Bars of one rank.
class TimelineRow {
 public:
  TimelineRow(const StepTimeline& timeline, double top) : timeline_(timeline), top_(top) {}

  void add(const TimelineSpan& span) {
    const double left = x(span.begin), width = x(span.end) - left;
    const bool is_call = timeline_.is_traced && span.kind == SpanKind::kTransfer;
    const size_t kind = static_cast<size_t>(span.kind);
    seconds_[kind] += span.end - span.begin;
    if (is_call) return bars_[kind].rectangle(left, top_ + kBar + 2, width, kCalls);
    bars_[kind].rectangle(left, top_, width, kBar);
    if (span.kind == SpanKind::kSkew || span.kind == SpanKind::kData) {
      covers_.rectangle(left, top_, width, kBar);  // their patterns let through what is below
      gaps_.push_back({left, left + width});
    }
    if (is_filled(span.kind)) words_.push_back({left, width, name_of(span.kind)});
  }

  std::string svg(int rank) {
    std::ranges::sort(gaps_, {}, &Gap::begin);
    std::string text = svg_text(kTimeLeft - 8, top_ + kBar / 2 + 4, "label", Anchor::kEnd,
                                fmt::format("rank {}", rank));
    for (const SpanKind kind :
         {SpanKind::kCompute, SpanKind::kForward, SpanKind::kBackward, SpanKind::kOptimizer}) {
      text += element(kind);
    }
    text += covers_.element("cover") + words();
    for (const SpanKind kind : {SpanKind::kData, SpanKind::kTransfer, SpanKind::kSkew}) {
      text += element(kind);
    }
    return text;
  }

 private:
  struct Word {
    double left = 0, width = 0;
    std::string_view name;
  };
  struct Gap {
    double begin = 0, end = 0;
  };

  double x(double seconds) const { return kTimeLeft + seconds / timeline_.seconds * kTimeWidth; }

  std::string element(SpanKind kind) const {
    const size_t index = static_cast<size_t>(kind);
    return bars_[index].element(class_of(kind), fmt::format("{}: {}", name_of(kind),
                                                            base::format_seconds(seconds_[index])));
  }

  /// The widest part of [begin, end) that no wait covers.
  Gap free_part(double begin, double end) const {
    Gap widest;
    double from = begin;
    for (const Gap& wait : gaps_) {
      if (wait.end <= from || wait.begin >= end) continue;
      if (wait.begin - from > widest.end - widest.begin) widest = {from, wait.begin};
      from = std::max(from, wait.end);
    }
    return end - from > widest.end - widest.begin ? Gap{from, end} : widest;
  }

  /// In each bar that has room.
  std::string words() const {
    std::string text;
    for (const Word& one : words_) {
      const Gap part = free_part(one.left, one.left + one.width);
      const double width = part.end - part.begin;
      if (width < kLetter) continue;
      const std::string_view word = width >= kWord ? one.name : one.name.substr(0, 1);
      text +=
          svg_text(part.begin + width / 2, top_ + kBar / 2 + 4, "in-fill", Anchor::kMiddle, word);
    }
    return text;
  }

  const StepTimeline& timeline_;
  double top_;
  std::array<SvgPath, kNumSpanKinds> bars_;
  std::array<double, kNumSpanKinds> seconds_{};
  SvgPath covers_;
  std::vector<Word> words_;
  std::vector<Gap> gaps_;
};

std::string time_axis(double seconds, double y) {
  SvgPath lines;
  std::string text;
  for (const double at : round_values(0, seconds, 6)) {
    const double x = kTimeLeft + at / seconds * kTimeWidth;
    lines.line(x, 2, x, y);
    text += svg_text(x, y + 14, "note", Anchor::kMiddle, base::format_seconds(at));
  }
  return lines.element("grid") + text;
}

}  // namespace

std::string timeline_picture(const StepTimeline& timeline) {
  if (timeline.seconds <= 0) return "";
  const double bottom = 6 + kRowHeight * static_cast<double>(timeline.ranks.size());
  std::string content = time_axis(timeline.seconds, bottom);
  double top = 6;
  for (const RankTimeline& rank : timeline.ranks) {
    TimelineRow row(timeline, top);
    for (const TimelineSpan& span : rank.spans) row.add(span);
    content += row.svg(rank.rank);
    top += kRowHeight;
  }
  return svg_picture(fmt::format("step {} of all ranks", timeline.step),
                     kTimeLeft + kTimeWidth + 30, bottom + 20, content);
}

}  // namespace hanji::report::internal
