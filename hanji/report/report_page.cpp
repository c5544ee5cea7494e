#include "hanji/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/report/internal/html.h"
#include "hanji/report/internal/page_charts.h"
#include "hanji/report/internal/page_sections.h"
#include "hanji/report/internal/page_style.h"
#include "hanji/report/run_facts.h"
#include "hanji/report/step_series.h"

namespace hanji::report {
namespace {

using base::format_seconds;
using internal::figure;
using internal::HtmlTable;
using internal::paragraph;
using internal::section;

std::string verdict_section(const Verdict& verdict) {
  std::string cause(name_of(verdict.cause));
  std::ranges::replace(cause, '_', ' ');
  std::string text = paragraph(verdict.sentence, "verdict");
  const bool is_named = verdict.cause != Cause::kNothing && verdict.cause != Cause::kNotMeasured;
  if (is_named) text += paragraph(fmt::format("Cause: {}.", cause));
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
  table.add({"of the published peak (MFU)",
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

/// What each category takes at most, by the plan and counted.
std::string table_of_memory(const OutcomeFacts& outcome) {
  constexpr std::string_view kPrefix = "memory.";
  HtmlTable table("bytes by category, of each the most that a rank had",
                  {{"category"}, {"planned"}, {"measured"}, {"error"}});
  for (const ComparisonRow& one : rows_of(outcome.comparisons, std::nullopt)) {
    if (!one.name.starts_with(kPrefix)) continue;
    table.add({one.name.substr(kPrefix.size()), one.predicted, one.measured, one.error});
  }
  return table.html();
}

std::string memory_section(const RunRecords& run, const OutcomeFacts& outcome) {
  const std::string picture = internal::memory_picture(run, outcome);
  if (picture.empty()) {
    return section("Memory",
                   paragraph("Not measured: no account of two steps lies in the folder."));
  }
  const std::string caption = fmt::format(
      "Line: bytes of tensors after a step, least and most of all ranks. Dashed: the most at once "
      "by "
      "the plan. {}",
      outcome.peak_bytes.empty() ? "The most at once is not measured: the run has not ended."
                                 : "Diamond: the most at once, measured.");
  return section(
      "Memory", figure(picture, "bytes of tensors over steps", caption) + table_of_memory(outcome));
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
         ran_section(run) + internal::timelines_section(timelines, run.ranks.size()) +
         internal::seconds_section(run) + rate_section(run, verdict) + loss_section(run) +
         memory_section(run, outcome) + internal::communication_section(run) +
         internal::operations_section(run) + internal::comparison_section(outcome) +
         internal::faults_section(run, outcome) + "</main>\n</body>\n</html>\n";
}

}  // namespace hanji::report
