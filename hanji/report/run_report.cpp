#include "hanji/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/plan/model_family.h"
#include "hanji/report/efficiency.h"
#include "hanji/report/verdict.h"

namespace hanji::report {
namespace {

using base::Json;
using base::TextTable;

constexpr size_t kMaxCalls = 5;

std::string mesh_of(const plan::Plan& plan) {
  std::string text;
  for (const layout::Axis& axis : plan.mesh.axes()) {
    if (axis.degree == 1) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, axis.degree);
  }
  return text.empty() ? "one rank" : text;
}

int64_t steps_done(const RunRecords& run) {
  int64_t steps = 0;
  for (const RankSteps& rank : run.ranks) {
    if (!rank.accounts.empty()) steps = std::max(steps, rank.accounts.back().step);
  }
  return steps;
}

/// The mean step of all ranks together, with all axes, calls and waits; none: no accounts.
std::optional<StepAccount> all_ranks(const RunRecords& run) {
  std::optional<StepAccount> sum;
  for (const RankSteps& rank : run.ranks) {
    for (size_t i = 1; i < rank.accounts.size(); ++i) {  // the first warms up
      if (sum) {
        add(*sum, rank.accounts[i]);
      } else {
        sum = rank.accounts[i];
      }
    }
  }
  return sum;
}

std::string per_step(double seconds, const StepAccount& sum) {
  return base::format_seconds(seconds / static_cast<double>(sum.steps));
}

std::string per_step(const std::optional<double>& seconds, const StepAccount& sum) {
  return seconds ? per_step(*seconds, sum) : "unknown";
}

/// The ranks with the shortest and longest waits where there are too many.
std::vector<StepParts> shown_of(std::vector<StepParts> parts) {
  if (parts.size() <= kMaxRanksShown) return parts;
  std::ranges::stable_sort(parts, {}, &StepParts::skew);
  parts.erase(parts.begin() + kMaxRanksShown / 2, parts.end() - kMaxRanksShown / 2);
  std::ranges::sort(parts, {}, &StepParts::rank);
  return parts;
}

std::string table_of_ranks(const RunRecords& run, int columns) {
  const std::vector<StepParts> parts = mean_parts(run);
  if (parts.empty()) return "";
  TextTable table({{"rank"}, {"step"}, {"compute"}, {"samples"}, {"bytes"}, {"waits"}, {"CPU"}});
  for (const StepParts& one : shown_of(parts)) {
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

std::string table_of_axes(const StepAccount& sum, int columns) {
  if (sum.axes.empty()) return "";
  using enum base::TextTable::Align;
  TextTable table({{"axis", kLeft}, {"calls"}, {"bytes"}, {"moving bytes"}, {"waiting"}});
  for (const AxisAccount& one : sum.axes) {
    const auto steps = static_cast<double>(sum.steps);
    table.add({one.axis, fmt::format("{:.3g}", static_cast<double>(one.calls) / steps),
               base::format_bytes(std::llround(static_cast<double>(one.bytes) / steps)),
               per_step(one.exposed_transfer, sum), per_step(one.skew, sum)});
  }
  return "\n" + table.text(columns);
}

std::string table_of_calls(const StepAccount& sum, int columns) {
  if (sum.calls.empty()) return "";
  std::vector<CallAccount> calls = sum.calls;
  std::ranges::stable_sort(calls, std::greater(), &CallAccount::seconds);
  if (calls.size() > kMaxCalls) calls.resize(kMaxCalls);
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

std::string outcome_lines(const RunRecords& run) {
  const auto summary = base::parse_json(run.summary);
  if (!summary.ok()) return "outcome      the run has not ended\n";
  const auto number = [&](const char* name) {
    return summary->contains(name) && (*summary)[name].is_number()
               ? std::optional((*summary)[name].get<double>())
               : std::nullopt;
  };
  std::string text = "outcome    ";
  if (const auto loss = number("train_loss")) text += fmt::format("  train loss {:.4f}", *loss);
  if (const auto loss = number("validation_loss"))
    text += fmt::format("  validation {:.4f}", *loss);
  if (const auto skipped = number("skipped_steps"); skipped.value_or(0) > 0) {
    text += fmt::format("  {} skipped", base::counted(std::llround(*skipped), "step"));
  }
  return text + "\n";
}

std::string rate_line(const RunRecords& run, const Verdict& verdict) {
  if (verdict.step_seconds <= 0) return "";
  const plan::Plan& plan = run.plan;
  const double targets = static_cast<double>(plan.config.train.global_batch) *
                         static_cast<double>(plan.model.targets_per_sample);
  std::string text = fmt::format("rate         {} {}/s, a step of {}",
                                 base::format_count(std::llround(targets / verdict.step_seconds)),
                                 plan::targets_of(plan::family_of(plan.config.model).data),
                                 base::format_seconds(verdict.step_seconds));
  const double products = products_rate(run, verdict.step_seconds);
  if (products > 0) {
    text += fmt::format(", {:.0f} % of the products' rate measured here", 100 * products);
  }
  return text + "\n";
}

Json or_null(const std::optional<double>& value, double over) {
  return value ? Json(*value / over) : Json();
}

Json values_of(const std::vector<Saving>& causes) {
  Json all = Json::array();
  for (const Saving& one : causes) {
    all.push_back({{"cause", name_of(one.cause)},
                   {"ranks", one.ranks},
                   {"where", one.where},
                   {"saving_seconds", *one.seconds},
                   {"sentence", one.sentence}});
  }
  return all;
}

Json value_of(const Verdict& verdict) {
  return {{"cause", name_of(verdict.cause)},
          {"rank", verdict.rank < 0 ? Json() : Json(verdict.rank)},
          {"where", verdict.where},
          {"step_seconds", verdict.step_seconds},
          {"lost_seconds", verdict.lost_seconds},
          {"saving_seconds", verdict.saving_seconds ? Json(*verdict.saving_seconds) : Json()},
          {"sentence", verdict.sentence},
          {"causes", values_of(verdict.causes)}};
}

Json value_of(const StepParts& one) {
  return {{"rank", one.rank},
          {"seconds", one.seconds},
          {"compute", one.compute},
          {"data", one.data},
          {"exposed_transfer", one.exposed_transfer},
          {"skew", one.skew},
          {"cpu", one.cpu}};
}

/// By axis and by call, of a mean step.
void add_sums(const StepAccount& sum, Json& json) {
  const auto steps = static_cast<double>(sum.steps);
  for (const AxisAccount& one : sum.axes) {
    json["by_axis"].push_back({{"axis", one.axis},
                               {"calls", static_cast<double>(one.calls) / steps},
                               {"bytes", static_cast<double>(one.bytes) / steps},
                               {"exposed_transfer", or_null(one.exposed_transfer, steps)},
                               {"skew", or_null(one.skew, steps)}});
  }
  for (const CallAccount& one : sum.calls) {
    json["by_call"].push_back({{"routine", one.routine},
                               {"count", static_cast<double>(one.count) / steps},
                               {"bytes", static_cast<double>(one.bytes) / steps},
                               {"seconds", one.seconds / steps}});
  }
}

}  // namespace

std::string run_report(const RunRecords& run, int columns) {
  const Verdict verdict = judge_run(run);
  const plan::Plan& plan = run.plan;
  std::string text =
      fmt::format("run          {}: {}, {} ({}), {}, parallel.data = {}\n", run.folder.string(),
                  plan.config.model.preset, base::counted(plan.ranks, "rank"), mesh_of(plan),
                  plan::name_of(plan.kernels.precision), plan::name_of(plan.config.parallel.data));
  text += fmt::format("steps        {} of {}\n", steps_done(run), plan.config.train.steps);
  text += rate_line(run, verdict) + outcome_lines(run) + efficiency_line(run);
  text += fmt::format("\nverdict      {}\n", verdict.sentence);
  text = base::wrap(text, columns, 13);
  text += table_of_ranks(run, columns);
  if (const auto sum = all_ranks(run)) {
    text += table_of_axes(*sum, columns) + table_of_calls(*sum, columns);
  }
  return text + base::wrap(plan_lines(run, verdict), columns, 13);
}

std::string run_report_json(const RunRecords& run) {
  const Verdict verdict = judge_run(run);
  Json json = {{"format", kReportFormat},
               {"folder", run.folder.string()},
               {"ranks", run.plan.ranks},
               {"mesh", mesh_of(run.plan)},
               {"steps", steps_done(run)},
               {"verdict", value_of(verdict)},
               {"products_rate", products_rate(run, verdict.step_seconds)},
               {"by_rank", Json::array()},
               {"by_axis", Json::array()},
               {"by_call", Json::array()}};
  for (const StepParts& one : mean_parts(run)) json["by_rank"].push_back(value_of(one));
  if (const auto sum = all_ranks(run)) add_sums(*sum, json);
  return base::dump(json, 1) + "\n";
}

std::string verdict_lines(const RunRecords& run) {
  return fmt::format("{}\nmore: hanji report {}\n", judge_run(run).sentence, run.folder.string()) +
         efficiency_hint(run);
}

}  // namespace hanji::report
