#include "hanji/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/plan/model_family.h"
#include "hanji/report/efficiency.h"
#include "hanji/report/run_facts.h"
#include "hanji/report/step_series.h"
#include "hanji/report/verdict.h"

namespace hanji::report {
namespace {

using base::TextTable;

constexpr size_t kMaxLines = 40;
constexpr size_t kMaxCalls = 5;

size_t lines_in(const std::string& text) { return std::ranges::count(text, '\n'); }

std::string per_step(double seconds, const StepAccount& sum) {
  return base::format_seconds(seconds / static_cast<double>(sum.steps));
}

std::string lines_of_ranks(const RunRecords& run, int columns) {
  const std::vector<StepParts> parts = mean_parts(run);
  if (parts.empty()) return "";
  TextTable table({{"rank"}, {"step"}, {"compute"}, {"samples"}, {"bytes"}, {"waits"}, {"CPU"}});
  for (const StepParts& one : shown_parts(parts)) {
    table.add({std::to_string(one.rank), base::format_seconds(one.seconds),
               base::format_seconds(one.compute), base::format_seconds(one.data),
               base::format_seconds(one.exposed_transfer), base::format_seconds(one.skew),
               base::format_seconds(one.cpu)});
  }
  std::string text = "\n" + table.text(columns);
  if (parts.size() > kMaxRanksShown) {
    text += fmt::format("and {} more, which wait neither longest nor shortest\n",
                        base::counted(static_cast<int64_t>(parts.size() - kMaxRanksShown), "rank"));
  }
  return text;
}

std::string or_unknown(const std::optional<double>& seconds) {
  return seconds ? base::format_seconds(*seconds) : "unknown";
}

std::string per_second(double bytes) { return base::format_bytes(std::llround(bytes)) + "/s"; }

std::string lines_of_axes(const RunRecords& run, int columns) {
  const std::vector<AxisFacts> axes = axes_of(run);
  if (axes.empty()) return "";
  using enum base::TextTable::Align;
  TextTable table(
      {{"axis", kLeft}, {"calls"}, {"bytes"}, {"moving bytes"}, {"waiting"}, {"rate"}, {"link"}});
  for (const AxisFacts& one : axes) {
    table.add({one.axis, fmt::format("{:.3g}", one.calls),
               base::format_bytes(std::llround(one.bytes)), or_unknown(one.exposed_transfer),
               or_unknown(one.skew), one.bytes_per_second ? per_second(*one.bytes_per_second) : "-",
               one.link_bytes_per_second > 0 ? per_second(one.link_bytes_per_second) : "-"});
  }
  return "\n" + table.text(columns);
}

/// At most `most` calls, the longest first.
std::string lines_of_calls(const StepAccount& sum, size_t most, int columns) {
  if (sum.calls.empty() || most == 0) return "";
  std::vector<CallAccount> calls = sum.calls;
  std::ranges::stable_sort(calls, std::greater(), &CallAccount::seconds);
  if (calls.size() > most) calls.resize(most);
  using enum base::TextTable::Align;
  TextTable table({{"call", kLeft}, {"times"}, {"bytes"}, {"open"}, {"longest wait in it", kLeft}});
  for (const CallAccount& one : calls) {
    const auto wait = std::ranges::find(sum.waits, one.routine, &WaitAccount::routine);
    const auto steps = static_cast<double>(sum.steps);
    table.add({one.routine, fmt::format("{:.3g}", static_cast<double>(one.count) / steps),
               base::format_bytes(std::llround(static_cast<double>(one.bytes) / steps)),
               per_step(one.seconds, sum),
               wait == sum.waits.end()
                   ? ""
                   : fmt::format("for rank {}, {}", wait->rank, per_step(wait->seconds, sum))});
  }
  return "\n" + table.text(columns);
}

std::string plan_lines(const RunRecords& run, const Verdict& verdict) {
  const plan::Prediction& p = run.plan.predicted;
  if (verdict.step_seconds <= 0 || p.step_seconds <= 0) return "";
  return fmt::format(
      "\nplanned      a step of {} ({:+.1f} % off), of it {} computing, {} moving bytes\n",
      base::format_seconds(p.step_seconds), 100 * (p.step_seconds / verdict.step_seconds - 1),
      base::format_seconds(p.compute_seconds), base::format_seconds(p.exposed_transfer_seconds));
}

std::string saving_text(const OutcomeFacts& outcome) {
  if (!outcome.saving || outcome.saving->saves == 0) return "";
  const SavingFacts& saving = *outcome.saving;
  return fmt::format(
      "  {}: a step waited {} for each{}", base::counted(saving.saves, "checkpoint"),
      base::format_seconds(saving.blocked_median),
      saving.failed > 0 ? fmt::format(" ({} failed)", base::counted(saving.failed, "save")) : "");
}

std::string outcome_lines(const RunRecords& run) {
  const OutcomeFacts outcome = outcome_of(run);
  std::string text = "outcome    ";
  if (!outcome.has_ended) text += "  the run has not ended";
  if (outcome.train_loss) text += fmt::format("  train loss {:.4f}", *outcome.train_loss);
  if (outcome.validation_loss) text += fmt::format("  validation {:.4f}", *outcome.validation_loss);
  if (outcome.skipped_steps.value_or(0) > 0) {
    text += fmt::format("  {} skipped", base::counted(*outcome.skipped_steps, "step"));
  }
  if (!run.log.resumptions.empty()) {
    text += fmt::format("  resumed {}", base::counted(std::ssize(run.log.resumptions), "time"));
  }
  if (!run.log.warnings.empty()) {
    text += fmt::format("  {}", base::counted(std::ssize(run.log.warnings), "warning"));
  }
  return text + saving_text(outcome) + "\n";
}

/// The rank whose tensors had most, beside the plan.
std::string memory_line(const RunRecords& run) {
  const OutcomeFacts outcome = outcome_of(run);
  const int64_t planned = run.plan.predicted.peak_bytes_per_rank;
  if (outcome.peak_bytes.empty()) {
    return fmt::format("memory       not measured, as the run has not ended; {} planned\n",
                       base::format_bytes(planned));
  }
  return fmt::format("memory       {} of tensors at most on a rank, {} planned\n",
                     base::format_bytes(std::ranges::max(outcome.peak_bytes)),
                     base::format_bytes(planned));
}

std::string rate_line(const RunRecords& run, const Verdict& verdict) {
  const auto rate = rate_of(run, verdict);
  if (!rate) return "";
  std::string text = fmt::format("rate         {} {}/s, a step of {}",
                                 base::format_count(std::llround(rate->targets_per_second)),
                                 rate->targets, base::format_seconds(rate->step_seconds));
  if (rate->of_measured) {
    text += fmt::format(", {:.0f} % of the products' rate measured here", 100 * *rate->of_measured);
  }
  if (rate->of_peak) text += fmt::format(", {:.0f} % of {}'s", 100 * *rate->of_peak, rate->device);
  return text + "\n";
}

}  // namespace

std::vector<StepParts> shown_parts(std::vector<StepParts> parts) {
  if (parts.size() <= kMaxRanksShown) return parts;
  std::ranges::stable_sort(parts, {}, &StepParts::skew);
  parts.erase(parts.begin() + kMaxRanksShown / 2, parts.end() - kMaxRanksShown / 2);
  std::ranges::sort(parts, {}, &StepParts::rank);
  return parts;
}

std::string run_report(const RunRecords& run, int columns) {
  const Verdict verdict = judge_run(run);
  const plan::Plan& plan = run.plan;
  std::string text =
      fmt::format("run          {}: {}, {} ({}), {}, parallel.data = {}\n", run.folder.string(),
                  plan.config.model.preset, base::counted(plan.ranks, "rank"), mesh_of(plan),
                  plan::name_of(plan.kernels.precision), plan::name_of(plan.config.parallel.data));
  text += fmt::format("steps        {} of {}\n", last_step(run), plan.config.train.steps);
  text += rate_line(run, verdict) + memory_line(run) + outcome_lines(run) + efficiency_line(run);
  text += fmt::format("\nverdict      {}\n", verdict.sentence);
  text = base::wrap(text, columns, 13);
  text += lines_of_ranks(run, columns);
  const std::string planned = base::wrap(plan_lines(run, verdict), columns, 13);
  if (const auto sum = sum_of_steps(run)) {
    text += lines_of_axes(run, columns);
    const size_t used = lines_in(text) + lines_in(planned) + 2;  // and a blank one, and headings
    text +=
        lines_of_calls(*sum, used < kMaxLines ? std::min(kMaxCalls, kMaxLines - used) : 0, columns);
  }
  return text + planned;
}

std::string verdict_lines(const RunRecords& run) {
  return fmt::format("{}\nmore: hanji report {}\n", judge_run(run).sentence, run.folder.string()) +
         efficiency_hint(run);
}

}  // namespace hanji::report
