#include "hanji/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/report/internal/html.h"
#include "hanji/report/internal/page_charts.h"
#include "hanji/report/internal/page_style.h"
#include "hanji/report/run_facts.h"
#include "hanji/report/run_report.h"
#include "hanji/report/step_series.h"

namespace hanji::report {
namespace {

using base::format_bytes;
using base::format_seconds;
using internal::figure;
using internal::HtmlTable;
using internal::paragraph;
using internal::section;

constexpr std::string_view kUnknown = "not measured";
constexpr size_t kMaxWarnings = 50;

std::string or_unmeasured(const std::optional<double>& seconds) {
  return seconds ? format_seconds(*seconds) : std::string(kUnknown);
}

std::string bytes_or_not(double bytes) { return format_bytes(std::llround(bytes)); }

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

std::string verdict_section(const Verdict& verdict) {
  std::string cause(name_of(verdict.cause));
  std::ranges::replace(cause, '_', ' ');
  std::string text = paragraph(verdict.sentence, "verdict");
  text += paragraph(fmt::format("Cause: {}.", cause));
  return section("Verdict", text);
}

std::string certificate_text(const RunRecords& run) {
  const auto certificate = certificate_of(run);
  if (!certificate) return "none lies in the folder; hanji verify makes one";
  return fmt::format("{} {} as one process over {}, bits = {}",
                     base::counted(certificate->ranks, "rank"),
                     certificate->equal ? "train" : "do not train",
                     base::counted(certificate->steps, "step"), certificate->bits);
}

std::string kernels_text(const plan::Plan& plan) {
  const auto& kernels = plan.kernels;
  std::string text = fmt::format("{}, products by {}, attention by {}", name_of(kernels.precision),
                                 name_of(kernels.gemm), name_of(kernels.attention));
  if (kernels.gemm_flops_per_second > 0) {
    text += fmt::format("; {:.4g} GF/s of products on a rank, measured here",
                        kernels.gemm_flops_per_second / 1e9);
  }
  return text;
}

std::string ran_section(const RunRecords& run) {
  const plan::Plan& plan = run.plan;
  HtmlTable table("what ran", {{"fact"}, {"value", true}});
  table.add({"folder", run.folder.string()});
  table.add({"model", plan.config.model.preset});
  table.add({"mesh", mesh_of(plan)});
  table.add({"data parallelism", std::string(name_of(plan.config.parallel.data))});
  table.add({"machine", machine_of(plan)});
  table.add({"kernels", kernels_text(plan)});
  table.add({"steps", fmt::format("{} of {}", last_step(run), plan.config.train.steps)});
  table.add(
      {"batch", fmt::format("{} a step", base::counted(plan.config.train.global_batch, "sample"))});
  table.add({"certificate", certificate_text(run)});
  const std::string printed = fmt::format(
      "<details>\n<summary>The plan, as it was printed before step 1</summary>\n"
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"plan\">"
      "<pre>{}</pre></div>\n</details>\n",
      base::xml_escape(describe(plan)));
  return section("What ran", table.html() + printed);
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

std::string timelines_section(const std::vector<StepTimeline>& timelines) {
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
  return section("One step of all ranks", text);
}

std::string strips_caption(const internal::StripsPicture& picture, int64_t steps) {
  std::string text = fmt::format(
      "A strip is {} high; from the bottom up: computing, waiting for samples, bytes that move, "
      "waiting for a rank. The first step, which warms up, is left out.",
      format_seconds(picture.scale_seconds));
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

std::string seconds_section(const RunRecords& run) {
  const std::vector<StepParts> all = mean_parts(run);
  const std::vector<StepParts> shown = shown_parts(all);
  std::string text;
  if (all.empty()) {
    text = paragraph("Not measured by part: the verdict says why.");
  } else {
    text = table_of_parts(shown);
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

std::string rate_section(const RunRecords& run, const Verdict& verdict) {
  const auto rate = rate_of(run, verdict);
  if (!rate) return section("Rate", paragraph("Not measured: the verdict says why."));
  HtmlTable table("rate", {{"quantity"}, {"value", true}});
  table.add({fmt::format("{} per second", rate->targets),
             base::format_count(std::llround(rate->targets_per_second))});
  table.add({"step", format_seconds(rate->step_seconds)});
  table.add({"products of the model", fmt::format("{:.4g} GF/s", rate->flops_per_second / 1e9)});
  table.add({"of the rate measured on this machine",
             rate->of_measured ? fmt::format("{:.1f} %", 100 * *rate->of_measured)
                               : "not measured: the plan has no rate of these kernels"});
  table.add({"of the published peak",
             rate->of_peak ? fmt::format("{:.1f} % of {}", 100 * *rate->of_peak, rate->device)
                           : "not known: no table has this device"});
  return section("Rate", table.html());
}

std::string loss_section(const RunRecords& run) {
  const std::string picture = internal::loss_picture(run);
  if (picture.empty()) {
    return section("Loss", paragraph("Not measured: run.jsonl has no two steps with a loss."));
  }
  HtmlTable table("validation", {{"after step"}, {"loss"}});
  for (const TrainingLog::Point& one : run.log.validation_losses) {
    table.add({std::to_string(one.step), fmt::format("{:.4f}", one.value)});
  }
  const std::string values = table.empty() ? ""
                                           : "<details>\n<summary>Validation losses</summary>\n" +
                                                 table.html() + "</details>\n";
  return section(
      "Loss",
      figure(picture, "loss over steps",
             fmt::format("Line: train loss, {:.4f} at last. Diamonds: validation loss{}.",
                         run.log.train_losses.back().value,
                         table.empty() ? ", none yet"
                                       : fmt::format(", {:.4f} at last",
                                                     run.log.validation_losses.back().value))) +
          values);
}

std::string memory_section(const RunRecords& run, const OutcomeFacts& outcome) {
  const std::string picture = internal::memory_picture(run, outcome);
  if (picture.empty()) {
    return section("Memory",
                   paragraph("Not measured: no account of two steps lies in the folder."));
  }
  return section(
      "Memory",
      figure(picture, "bytes of tensors over steps",
             fmt::format("Line: bytes of tensors after a step, least and most of all ranks. "
                         "Dashed: the most at once by the plan. {}",
                         outcome.peak_bytes.empty()
                             ? "The most at once is not measured: the run has not ended."
                             : "Diamond: the most at once, measured. What each category takes is "
                               "in the table of the plan below.")));
}

std::string table_of_axes(const RunRecords& run) {
  HtmlTable table("calls of a step by axis, mean of ranks", {{"axis"},
                                                             {"calls"},
                                                             {"bytes"},
                                                             {"moving bytes"},
                                                             {"waiting for ranks"},
                                                             {"rate"},
                                                             {"link of the plan"}});
  for (const AxisFacts& one : axes_of(run)) {
    table.add(
        {one.axis, fmt::format("{:.3g}", one.calls), bytes_or_not(one.bytes),
         or_unmeasured(one.exposed_transfer), or_unmeasured(one.skew),
         one.bytes_per_second ? bytes_or_not(*one.bytes_per_second) + "/s" : std::string(kUnknown),
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

std::string communication_section(const RunRecords& run) {
  const std::string tables = table_of_axes(run) + table_of_calls(run);
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

std::string faults_section(const RunRecords& run, const OutcomeFacts& outcome) {
  const auto count = [](const std::optional<int64_t>& value) {
    return value ? std::to_string(*value) : std::string("not measured: the run has not ended");
  };
  HtmlTable table("faults and checkpoints", {{"quantity"}, {"value", true}});
  table.add({"run", outcome.has_ended ? "has ended" : "has not ended"});
  table.add({"resumed", base::counted(std::ssize(run.log.resumptions), "time")});
  table.add({"steps that changed nothing", count(outcome.skipped_steps)});
  table.add({"of them without a valid target", count(outcome.steps_without_targets)});
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
  std::string more;
  if (shown < run.log.warnings.size()) {
    more = paragraph(
        fmt::format("{} more are in run.jsonl.",
                    base::counted(std::ssize(run.log.warnings) - kMaxWarnings, "warning")),
        "quiet");
  }
  return section("Faults and checkpoints", table.html() + events.html() + more);
}

/// Fills that are stripes, so that waiting differs from computing in more than its colour.
constexpr std::string_view kPatterns =
    "<svg class=\"patterns\" aria-hidden=\"true\" width=\"0\" height=\"0\"><defs>\n"
    "<pattern id=\"skew\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><path class=\"skew-line\" d=\"M0 0V5\"/></pattern>\n"
    "<pattern id=\"data\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">"
    "<path class=\"data-line\" d=\"M1 0V4\"/></pattern>\n</defs></svg>\n";

std::string head_of(const std::string& title) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{}</title>\n<style>\n{}</style>\n</head>\n",
      base::xml_escape(title), internal::page_style());
}

}  // namespace

std::string report_page(const RunRecords& run, const std::vector<StepTimeline>& timelines) {
  const Verdict verdict = judge_run(run);
  const OutcomeFacts outcome = outcome_of(run);
  const std::string title = fmt::format("hanji report: {}", run.folder.string());
  return head_of(title) + "<body>\n" + std::string(kPatterns) + "<main>\n" +
         fmt::format("<h1>{}</h1>\n", base::xml_escape(title)) + verdict_section(verdict) +
         ran_section(run) + timelines_section(timelines) + seconds_section(run) +
         rate_section(run, verdict) + loss_section(run) + memory_section(run, outcome) +
         communication_section(run) + comparison_section(outcome) + faults_section(run, outcome) +
         "</main>\n</body>\n</html>\n";
}

}  // namespace hanji::report
