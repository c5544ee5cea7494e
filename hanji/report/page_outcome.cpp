#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/report/internal/html.h"
#include "hanji/report/internal/page_sections.h"

namespace hanji::report::internal {
namespace {

using base::format_bytes;
using base::format_seconds;

constexpr size_t kMaxWarnings = 50;
constexpr size_t kWaitRows = 12;

std::string or_unmeasured(const std::optional<double>& seconds) {
  return seconds ? format_seconds(*seconds) : "not measured";
}

std::string bytes_or_not(double bytes) { return format_bytes(std::llround(bytes)); }

std::string table_of_axes(const RunRecords& run) {
  HtmlTable table("calls of a step by axis, mean of ranks", {{"axis"},
                                                             {"calls"},
                                                             {"bytes"},
                                                             {"moving bytes"},
                                                             {"waiting for ranks"},
                                                             {"rate"},
                                                             {"link of the plan"}});
  for (const AxisFacts& one : axes_of(run)) {
    table.add({one.axis, fmt::format("{:.3g}", one.calls), bytes_or_not(one.bytes),
               or_unmeasured(one.exposed_transfer), or_unmeasured(one.skew),
               one.bytes_per_second ? bytes_or_not(*one.bytes_per_second) + "/s" : "not measured",
               one.link_bytes_per_second > 0
                   ? fmt::format("{}/s, {}", bytes_or_not(one.link_bytes_per_second),
                                 one.is_network ? "between hosts" : "memory of the host")
                   : "not known"});
  }
  return table.html();
}

std::string table_of_calls(const RunRecords& run) {
  HtmlTable table("calls of a step by routine, mean of ranks",
                  {{"routine"}, {"calls"}, {"bytes"}, {"open"}, {"longest wait in it", true}});
  const auto sum = sum_of_steps(run);
  if (!sum) return "";
  const auto steps = static_cast<double>(sum->steps);
  for (const CallAccount& one : sum->calls) {
    const auto wait = std::ranges::find(sum->waits, one.routine, &WaitAccount::routine);
    table.add(
        {one.routine, fmt::format("{:.3g}", static_cast<double>(one.count) / steps),
         bytes_or_not(static_cast<double>(one.bytes) / steps), format_seconds(one.seconds / steps),
         wait == sum->waits.end()
             ? "none recorded"
             : fmt::format("for rank {}, {}", wait->rank, format_seconds(wait->seconds / steps))});
  }
  return table.html();
}

std::string table_of_waits(const RunRecords& run) {
  HtmlTable table("who waits for whom in a step, the longest first",
                  {{"rank"}, {"waits for rank"}, {"in"}, {"seconds"}});
  for (const WaitFacts& one : longest_waits(run, kWaitRows)) {
    table.add({std::to_string(one.rank), std::to_string(one.awaited),
               one.routine.empty() ? "not known" : one.routine, format_seconds(one.seconds)});
  }
  return table.html();
}

std::string checkpoints_text(const OutcomeFacts& outcome) {
  if (!outcome.saving) return "not measured: the run has not ended";
  const SavingFacts& saving = *outcome.saving;
  if (saving.saves == 0)
    return saving.failed == 0 ? "none" : fmt::format("{} failed", saving.failed);
  return fmt::format(
      "{}, {} failed; a step waited {} for each, {} at most; the disk took {} beside it",
      saving.saves, saving.failed, format_seconds(saving.blocked_median),
      format_seconds(saving.blocked_longest), format_seconds(saving.written_median));
}

/// Samples that the policy for damaged ones let a run skip.
std::string skipped_samples_of(const RunRecords& run) {
  if (run.plan.config.data.corrupt == plan::CorruptPolicy::kStop) {
    return "none: data.corrupt = stop ends a run instead";
  }
  return "not counted; logs/rank.N names the first ones of rank N";
}

std::string last_failure_of(const OutcomeFacts& outcome) {
  if (outcome.last_failure.empty()) return "";
  return fmt::format(
      "<h3>The last failure</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"the last failure\"><pre>{}</pre></div>\n",
      base::xml_escape(outcome.last_failure));
}

}  // namespace

std::string communication_section(const RunRecords& run) {
  const std::string tables = table_of_axes(run) + table_of_calls(run) + table_of_waits(run);
  if (tables.empty()) return section("Communication", paragraph("No call is recorded."));
  return section("Communication",
                 tables + paragraph("Bytes are those of a rank's tensors. The rate divides them by "
                                    "the seconds in which they move and nothing is computed.",
                                    "quiet"));
}

std::string comparison_section(const OutcomeFacts& outcome) {
  if (outcome.comparisons.empty()) {
    return section("Plan against run", paragraph("Not measured: the run has not ended."));
  }
  HtmlTable table("each line of the plan and what was measured",
                  {{"quantity"}, {"predicted"}, {"measured"}, {"error"}, {"of a step"}});
  for (const ComparisonRow& one : rows_of(outcome.comparisons, outcome.step_seconds)) {
    table.add({one.name, one.predicted, one.measured, one.error, one.of_step});
  }
  return section("Plan against run",
                 table.html() + paragraph("A dash: not predicted, or not measured.", "quiet"));
}

std::string faults_section(const RunRecords& run, const OutcomeFacts& outcome) {
  const auto count = [](const std::optional<int64_t>& value) {
    return value ? std::to_string(*value) : std::string("not measured: the run has not ended");
  };
  HtmlTable table("faults and checkpoints", {{"quantity"}, {"value", true}});
  table.add({"run", outcome.has_ended ? "has ended" : "has not ended"});
  table.add({"resumed", base::counted(std::ssize(run.log.resumptions), "time")});
  table.add({"steps that changed nothing", count(outcome.skipped_steps)});
  table.add({"of them without a valid target", count(outcome.steps_without_targets)});
  table.add({"skipped samples", skipped_samples_of(run)});
  table.add({"warnings", std::to_string(run.log.warnings.size())});
  table.add({"checkpoints", checkpoints_text(outcome)});
  HtmlTable events("restarts and warnings", {{"after step"}, {"what", true}});
  for (const TrainingLog::Resumption& one : run.log.resumptions) {
    events.add({std::to_string(one.step), "resumed on " + base::counted(one.ranks, "rank")});
  }
  const size_t shown = std::min(kMaxWarnings, run.log.warnings.size());
  for (size_t i = 0; i < shown; ++i) {
    events.add({std::to_string(run.log.warnings[i].step), run.log.warnings[i].text});
  }
  std::string more = last_failure_of(outcome);
  if (shown < run.log.warnings.size()) {
    more += paragraph(
        fmt::format("{} more are in run.jsonl.",
                    base::counted(std::ssize(run.log.warnings) - kMaxWarnings, "warning")),
        "quiet");
  }
  return section("Faults and checkpoints", table.html() + events.html() + more);
}

}  // namespace hanji::report::internal
