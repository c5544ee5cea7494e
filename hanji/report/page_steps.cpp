#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/report/internal/html.h"
#include "hanji/report/internal/page_charts.h"
#include "hanji/report/internal/page_sections.h"
#include "hanji/report/run_facts.h"
#include "hanji/report/run_report.h"
#include "hanji/report/step_series.h"

namespace hanji::report::internal {
namespace {

using base::format_seconds;

/// A sample of a fill with its words.
std::string key_of(const std::vector<std::pair<std::string_view, std::string_view>>& entries) {
  std::string text = "<ul class=\"key\">\n";
  for (const auto& [css_class, words] : entries) {
    text += fmt::format(
        "<li><svg aria-hidden=\"true\" width=\"14\" height=\"14\" viewBox=\"0 0 14 14\">"
        "<rect class=\"{}\" width=\"14\" height=\"14\"/></svg>{}</li>\n",
        css_class, base::xml_escape(words));
  }
  return text + "</ul>\n";
}

std::string timeline_of(const StepTimeline& timeline) {
  const std::string which = timeline.is_slowest ? "the slowest step" : "a step of median length";
  std::string caption =
      fmt::format("Step {}, {}: {}. ", timeline.step, which, format_seconds(timeline.seconds));
  caption += timeline.is_traced
                 ? "From the traces of the ranks: below each rank, thinner, its calls from begin "
                   "to result."
                 : "From the accounts: how long each part took, in no order of time.";
  if (!timeline.note.empty()) caption += " Note: " + timeline.note + ".";
  return fmt::format("<h3>{}</h3>\n",
                     timeline.is_slowest ? "The slowest step" : "A step of median length") +
         figure(internal::timeline_picture(timeline), which, caption);
}

std::string strips_caption(const internal::StripsPicture& picture, int64_t steps) {
  std::string text = fmt::format(
      "A strip is {} high; from the bottom up: {}. The first step, which warms up, is left out.",
      format_seconds(picture.scale_seconds),
      picture.is_told
          ? "computing, waiting for samples, bytes that move, waiting for a rank"
          : "computing, moving bytes and waiting for ranks together, which the engine does "
            "not tell apart; waiting for samples");
  if (steps > kSeriesColumns) {
    text +=
        fmt::format(" Each of {} columns shows the longest of about {:.3g} steps.", kSeriesColumns,
                    static_cast<double>(steps) / static_cast<double>(kSeriesColumns));
  }
  if (picture.beyond > 0) {
    text += fmt::format(
        " {} cut at the top and marked; the longest is {}.",
        base::counted(picture.beyond, "column") + (picture.beyond == 1 ? " is" : " are"),
        format_seconds(picture.longest_seconds));
  }
  return text;
}

std::string table_of_parts(const std::vector<StepParts>& parts) {
  HtmlTable table("mean seconds of a step by rank", {{"rank"},
                                                     {"step"},
                                                     {"computing"},
                                                     {"samples"},
                                                     {"moving bytes"},
                                                     {"waiting for ranks"},
                                                     {"CPU time"}});
  for (const StepParts& one : parts) {
    table.add({std::to_string(one.rank), format_seconds(one.seconds), format_seconds(one.compute),
               format_seconds(one.data), format_seconds(one.exposed_transfer),
               format_seconds(one.skew), format_seconds(one.cpu)});
  }
  return table.html();
}

std::string table_of_computing(const RunRecords& run, const std::vector<StepParts>& shown) {
  HtmlTable table("what computing consists of, mean seconds of a step",
                  {{"rank"}, {"forward"}, {"backward"}, {"optimizer"}, {"other"}});
  for (const ComputeParts& one : compute_parts_of(run)) {
    if (std::ranges::find(shown, one.rank, &StepParts::rank) == shown.end()) continue;
    table.add({std::to_string(one.rank), format_seconds(one.forward), format_seconds(one.backward),
               format_seconds(one.optimizer), format_seconds(one.other)});
  }
  return table.html();
}

}  // namespace

std::string timelines_section(const std::vector<StepTimeline>& timelines, size_t ranks) {
  if (timelines.empty()) {
    return section("One step of all ranks",
                   paragraph("Not measured: no account of two steps lies in the folder."));
  }
  std::string text = key_of({{"forward", "forward, or computing as such"},
                             {"backward", "backward"},
                             {"optimizer", "optimizer"},
                             {"data", "waiting for samples (upright stripes)"},
                             {"transfer", "calls, bytes that move"},
                             {"skew", "waiting for a rank (slanted stripes)"}});
  for (const StepTimeline& one : timelines) text += timeline_of(one);
  if (timelines.front().ranks.size() < ranks) {
    text += paragraph(fmt::format("{} of {} are drawn.", timelines.front().ranks.size(),
                                  base::counted(static_cast<int64_t>(ranks), "rank")),
                      "quiet");
  }
  return section("One step of all ranks", text);
}

std::string seconds_section(const RunRecords& run) {
  const std::vector<StepParts> all = mean_parts(run);
  const std::vector<StepParts> shown = shown_parts(all);
  std::string text;
  if (all.empty()) {
    text = paragraph("Not measured by part: the verdict says why.");
  } else {
    text = table_of_parts(shown) + table_of_computing(run, shown);
    if (all.size() > shown.size()) {
      text += paragraph(fmt::format("{} more wait neither longest nor shortest.",
                                    base::counted(std::ssize(all) - std::ssize(shown), "rank")),
                        "quiet");
    }
  }
  std::vector<int> ranks;
  for (const StepParts& one : shown) ranks.push_back(one.rank);
  for (size_t i = 0; all.empty() && i < std::min(run.ranks.size(), kMaxRanksShown); ++i) {
    ranks.push_back(run.ranks[i].rank);
  }
  const internal::StripsPicture picture = internal::strips_picture(run, ranks);
  return section("Where the time goes", text + figure(picture.svg, "seconds of each step by part",
                                                      strips_caption(picture, last_step(run))));
}

}  // namespace hanji::report::internal
