#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/text.h"
#include "hanji/report/internal/pipeline_figures.h"
#include "hanji/report/pipeline_chart.h"

namespace hanji::report {
namespace {

using schedule::Action;
using schedule::ActionKind;

constexpr double kLeft = 64, kWidth = 1200, kRow = 24, kTitle = 30, kLegendHeight = 40;

/// Dark for forwards, light for backwards, so that they differ in grey too; a second shade for every
/// second stage of a rank.
struct Paint {
  std::string_view fill[2];
  std::string_view text;
  std::string_view name;
};

Paint paint_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return {{"#2f5c9e", "#7396c8"}, "#ffffff", "forward"};
    case ActionKind::kBackwardInput: return {{"#bfe3e0", "#dff3f1"}, "#000000", "backward_input"};
    case ActionKind::kBackwardWeight: return {{"#f3d58a", "#faebc6"}, "#000000", "backward_weight"};
    default: return {{"#b7d5ac", "#dcecd6"}, "#000000", "backward"};
  }
}

std::string box(double x, double y, double width, const Paint& paint, int shade) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
      "stroke=\"#ffffff\" stroke-width=\"0.5\"/>\n",
      x, y, width, kRow - 4, paint.fill[shade]);
}

std::string label(double x, double y, std::string_view colour, std::string_view anchor,
                  std::string_view text) {
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\" fill=\"{}\" text-anchor=\"{}\">{}</text>\n",
                     x, y, colour, anchor, text);
}

/// `visits`: those of the schedule's stages.
std::string rank_svg(const PipelineChart& chart, const std::vector<int>& visits, size_t rank,
                     double y, double pixels_per_second) {
  std::string text = label(8, y + 14, "#000000", "start", fmt::format("rank {}", rank));
  for (size_t i = 0; i < chart.schedule.ranks[rank].size(); ++i) {
    const Action& action = chart.schedule.ranks[rank][i];
    if (!is_compute(action.kind)) continue;
    const auto& span = chart.timeline.ranks[rank][i];
    const double x = kLeft + span.begin * pixels_per_second;
    const double width = (span.end - span.begin) * pixels_per_second;
    const Paint paint = paint_of(action.kind);
    text += box(x, y, width, paint, visits[action.stage] % 2);
    const std::string number = std::to_string(action.micro_batch);
    if (width < 7.0 * static_cast<double>(number.size())) continue;
    text += label(x + width / 2, y + 14, paint.text, "middle", number);
  }
  return text;
}

std::string legend_svg(double y) {
  std::string text;
  double x = kLeft;
  for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward,
                                ActionKind::kBackwardInput, ActionKind::kBackwardWeight}) {
    const Paint paint = paint_of(kind);
    text += box(x, y, 20, paint, 0) + box(x + 20, y, 20, paint, 1);
    text += label(x + 46, y + 14, "#000000", "start", paint.name);
    x += 200;
  }
  return text + label(x, y + 14, "#000000", "start", "lighter: every second stage of a rank");
}

}  // namespace

std::string to_svg(std::span<const PipelineChart> charts) {
  double longest = 0;
  double height = kLegendHeight;
  for (const PipelineChart& chart : charts) {
    longest = std::max(longest, chart.timeline.seconds);
    height += kTitle + kRow * static_cast<double>(chart.schedule.ranks.size());
  }
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"monospace\" "
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#f4f4f4\"/>\n",
      kLeft + kWidth + 16, height);
  double y = 0;
  for (const PipelineChart& chart : charts) {
    text += label(8, y + 20, "#000000", "start", base::xml_escape(internal::title_of(chart)));
    y += kTitle;
    const std::vector<int> visits = internal::visits_of(chart.schedule);
    for (size_t rank = 0; rank < chart.schedule.ranks.size(); ++rank, y += kRow) {
      text += rank_svg(chart, visits, rank, y, longest > 0 ? kWidth / longest : 1);
    }
  }
  return text + legend_svg(y + 10) + "</svg>\n";
}

}  // namespace hanji::report
