#include "hanji/report/internal/page_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "hanji/base/units.h"
#include "hanji/report/internal/svg.h"
#include "hanji/report/statistics.h"
#include "hanji/report/step_series.h"

namespace hanji::report::internal {
namespace {

constexpr double kPlotLeft = 70, kPlotWidth = 640, kPictureWidth = 720;
constexpr double kStrip = 40, kStripGap = 8, kAxisHeight = 24;
constexpr double kCurveHeight = 180, kCurveTop = 14;

/// Steps of a run on the horizontal axis.
class StepAxis {
 public:
  explicit StepAxis(int64_t steps) : steps_(steps), columns_(num_columns(steps)) {}

  double left(int64_t column) const {
    return kPlotLeft + static_cast<double>(column) * kPlotWidth / static_cast<double>(columns_);
  }
  double middle(int64_t column) const {
    return left(column) + kPlotWidth / static_cast<double>(columns_) / 2;
  }
  int64_t steps() const { return steps_; }
  double column_width() const { return kPlotWidth / static_cast<double>(columns_); }

  /// The axis at `y`: a line, round steps, the word.
  std::string svg(double y) const {
    SvgPath line;
    line.line(kPlotLeft, y, kPlotLeft + kPlotWidth, y);
    std::string text = line.element("grid");
    for (const double step : round_values(1, static_cast<double>(steps_), 8)) {
      const auto whole = std::llround(step);
      if (whole < 1 || std::abs(step - static_cast<double>(whole)) > 1e-9) continue;
      text += svg_text(middle(column_of(whole, steps_)), y + 14, "note", Anchor::kMiddle,
                       std::to_string(whole));
    }
    return text + svg_text(kPlotLeft - 8, y + 14, "note", Anchor::kEnd, "step");
  }

 private:
  int64_t steps_, columns_;
};

/// Values on the vertical axis.
struct ValueAxis {
  double low = 0, high = 1;

  double y(double value) const {
    return kCurveTop + (high - value) / (high - low) * (kCurveHeight - kCurveTop);
  }

  std::string svg(const std::function<std::string(double)>& shown) const {
    SvgPath lines;
    std::string text;
    for (const double value : round_values(low, high, 4)) {
      lines.line(kPlotLeft, y(value), kPlotLeft + kPlotWidth, y(value));
      const double above_steps = std::min(y(value) + 4, kCurveHeight - 1);
      text += svg_text(kPlotLeft - 8, above_steps, "note", Anchor::kEnd, shown(value));
    }
    return lines.element("grid") + text;
  }
};

/// Upper ends of a column's parts, in seconds from the bottom up.
std::array<double, 4> ends_of(const SeriesColumn& one) {
  const double transfer = one.exposed_transfer.value_or(0), skew = one.skew.value_or(0);
  const double compute = std::max(0.0, one.longest - one.data - transfer - skew);
  return {compute, compute + one.data, compute + one.data + transfer, one.longest};
}

/// The parts of one rank, as areas between outlines that are constant over a column.
class Strip {
 public:
  Strip(const StepAxis& axis, double top, double scale) : axis_(axis), top_(top), scale_(scale) {}

  void draw(const std::vector<SeriesColumn>& columns) {
    size_t begin = 0;
    while (begin < columns.size()) {  // columns of which nothing is recorded divide it
      size_t end = begin + 1;
      while (end < columns.size() && columns[end].column == columns[end - 1].column + 1) ++end;
      draw_part({columns.begin() + static_cast<ptrdiff_t>(begin),
                 columns.begin() + static_cast<ptrdiff_t>(end)});
      begin = end;
    }
  }

  int64_t beyond() const { return beyond_; }

  std::string svg() const {
    constexpr std::array<std::string_view, 4> kClasses = {"forward", "data", "transfer", "skew"};
    constexpr std::array<std::string_view, 4> kTitles = {"computing", "waiting for samples",
                                                         "bytes that move", "waiting for ranks"};
    std::string text;
    for (size_t i = 0; i < 4; ++i) text += bands_[i].element(kClasses[i], kTitles[i]);
    return text + marks_.element("mark", "longer than the scale");
  }

 private:
  double y(double seconds) const {
    return top_ + kStrip - std::min(1.0, seconds / scale_) * kStrip;
  }

  void draw_part(const std::vector<SeriesColumn>& columns) {
    std::array<std::vector<double>, 5> lines;
    lines[0].assign(columns.size(), top_ + kStrip);
    for (const SeriesColumn& one : columns) {
      const auto ends = ends_of(one);
      for (size_t i = 0; i < 4; ++i) lines[i + 1].push_back(y(ends[i]));
      if (one.longest <= scale_) continue;
      ++beyond_;
      marks_.diamond(axis_.middle(one.column), top_ - 2, 2.5);
    }
    for (size_t i = 0; i < 4; ++i) {
      const bool is_flat = lines[i] == lines[i + 1];
      if (is_flat) continue;
      bands_[i].band(axis_.left(columns.front().column), axis_.column_width(), lines[i + 1],
                     lines[i]);
    }
  }

  const StepAxis& axis_;
  double top_, scale_;
  std::array<SvgPath, 4> bands_;
  SvgPath marks_;
  int64_t beyond_ = 0;
};

/// A little above all, but for a few columns that would make the others too low to read.
double scale_for(const std::vector<RankSeries>& all) {
  std::vector<double> lengths;
  for (const RankSeries& one : all) {
    for (const SeriesColumn& column : one.columns) lengths.push_back(column.longest);
  }
  if (lengths.empty()) return 0;
  const double most = std::ranges::max(lengths);
  const double usual = quantile(lengths, 0.9);
  return most <= 2 * usual ? most : 1.25 * usual;
}

std::string decimals(double value) { return fmt::format("{:.4g}", value); }

std::string bytes_text(double value) { return base::format_bytes(std::llround(value)); }

std::string picture_of_curves(std::string_view name, std::string_view content) {
  return svg_picture(name, kPictureWidth, kCurveHeight + kAxisHeight, content);
}

ValueAxis axis_of_losses(const TrainingLog& log) {
  ValueAxis values{.low = log.train_losses.front().value, .high = log.train_losses.front().value};
  for (const auto* points : {&log.train_losses, &log.validation_losses}) {
    for (const TrainingLog::Point& one : *points) {
      values.low = std::min(values.low, one.value);
      values.high = std::max(values.high, one.value);
    }
  }
  if (values.high <= values.low) values.high = values.low + 1;
  return values;
}

/// The plan's line across the picture, its words at the right.
std::string planned_line(const ValueAxis& axis, double bytes, bool words_above) {
  SvgPath line;
  const double y = axis.y(bytes);
  line.line(kPlotLeft, y, kPlotLeft + kPlotWidth, y);
  return line.element("planned") + svg_text(kPlotLeft + kPlotWidth, y + (words_above ? -6 : 14),
                                            "label", Anchor::kEnd,
                                            fmt::format("planned: {} at most", bytes_text(bytes)));
}

/// The most that a rank had, at the left.
std::string measured_mark(const ValueAxis& axis, double bytes, bool words_above) {
  SvgPath mark;
  const double y = axis.y(bytes);
  mark.diamond(kPlotLeft + 8, y, 5);
  return mark.element("mark", "the most of a rank at once") +
         svg_text(kPlotLeft + 18, y + (words_above ? -6 : 14), "label", Anchor::kStart,
                  fmt::format("measured: {} at most", bytes_text(bytes)));
}

struct MemoryRange {
  double least = 0, most = 0;
};

/// Least and most bytes of all ranks after the steps of each column.
std::map<int64_t, MemoryRange> memory_by_column(const RunRecords& run, int64_t steps) {
  std::map<int64_t, MemoryRange> all;
  for (const RankSteps& rank : run.ranks) {
    for (const SeriesColumn& one : series_of(rank, steps).columns) {
      if (one.most_memory <= 0) continue;
      const MemoryRange range{static_cast<double>(one.least_memory),
                              static_cast<double>(one.most_memory)};
      const auto [found, is_new] = all.try_emplace(one.column, range);
      found->second = {std::min(found->second.least, range.least),
                       std::max(found->second.most, range.most)};
    }
  }
  return all;
}

}  // namespace

StripsPicture strips_picture(const RunRecords& run, const std::vector<int>& ranks) {
  const int64_t steps = last_step(run);
  std::vector<RankSeries> all;
  for (const RankSteps& one : run.ranks) {
    if (std::ranges::find(ranks, one.rank) != ranks.end()) all.push_back(series_of(one, steps));
  }
  StripsPicture picture{.scale_seconds = scale_for(all)};
  if (picture.scale_seconds <= 0) return picture;
  const StepAxis axis(steps);
  std::string content;
  double top = 6;
  for (const RankSeries& one : all) {
    Strip strip(axis, top, picture.scale_seconds);
    strip.draw(one.columns);
    for (const SeriesColumn& column : one.columns) {
      picture.longest_seconds = std::max(picture.longest_seconds, column.longest);
      picture.is_told = picture.is_told && column.exposed_transfer && column.skew;
    }
    picture.beyond += strip.beyond();
    content += svg_text(kPlotLeft - 8, top + kStrip / 2 + 4, "label", Anchor::kEnd,
                        fmt::format("rank {}", one.rank)) +
               strip.svg();
    top += kStrip + kStripGap;
  }
  picture.svg = svg_picture("seconds of each step by part, a strip for each rank", kPictureWidth,
                            top + kAxisHeight, content + axis.svg(top));
  return picture;
}

std::string loss_picture(const RunRecords& run) {
  const TrainingLog& log = run.log;
  if (log.train_losses.size() < 2) return "";
  const int64_t steps = log.train_losses.back().step;
  const StepAxis axis(steps);
  const ValueAxis values = axis_of_losses(log);
  std::vector<SvgPath::Range> train;
  for (const CurveColumn& one : curve_of(log.train_losses, steps)) {
    train.push_back({axis.middle(one.column), values.y(one.most), values.y(one.least)});
  }
  SvgPath curve, marks;
  curve.ribbon(train);
  for (const TrainingLog::Point& one : log.validation_losses) {
    if (one.step < 1 || one.step > steps) continue;
    marks.diamond(axis.middle(column_of(one.step, steps)), values.y(one.value), 5);
  }
  const bool is_line = steps <= kSeriesColumns;
  return picture_of_curves("loss over steps",
                           values.svg(decimals) + axis.svg(kCurveHeight) +
                               curve.element(is_line ? "curve thin" : "curve", "train loss") +
                               marks.element("mark", "validation loss"));
}

std::string memory_picture(const RunRecords& run, const OutcomeFacts& outcome) {
  const int64_t steps = last_step(run);
  const auto columns = steps < 2 ? std::map<int64_t, MemoryRange>() : memory_by_column(run, steps);
  if (columns.empty()) return "";
  const StepAxis axis(steps);
  const auto planned = static_cast<double>(run.plan.predicted.peak_bytes_per_rank);
  const double measured =
      outcome.peak_bytes.empty() ? 0 : static_cast<double>(std::ranges::max(outcome.peak_bytes));
  ValueAxis values{.low = 0, .high = std::max(planned, measured)};
  for (const auto& [column, bytes] : columns) values.high = std::max(values.high, bytes.most);
  values.high *= 1.15;  // room for words
  std::vector<SvgPath::Range> after;
  for (const auto& [column, bytes] : columns) {
    after.push_back({axis.middle(column), values.y(bytes.most), values.y(bytes.least)});
  }
  SvgPath curve;
  curve.ribbon(after);
  std::string content = values.svg(bytes_text) + axis.svg(kCurveHeight) +
                        planned_line(values, planned, measured <= planned);
  if (measured > 0) content += measured_mark(values, measured, measured > planned);
  return picture_of_curves(
      "bytes of tensors over steps",
      content + curve.element("curve", "after a step, least and most of all ranks"));
}

}  // namespace hanji::report::internal
