#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/json.h"
#include "hanji/plan/plan.h"
#include "hanji/report/run_facts.h"
#include "hanji/report/run_report.h"
#include "hanji/report/step_series.h"

namespace hanji::report {
namespace {

using base::Json;

Json null_or(const std::optional<double>& value) { return value ? Json(*value) : Json(); }
Json null_or(const std::optional<int64_t>& value) { return value ? Json(*value) : Json(); }

Json report_json(const std::vector<Saving>& causes) {
  Json all = Json::array();
  for (const Saving& one : causes) {
    all.push_back({{"cause", name_of(one.cause)},
                   {"ranks", one.ranks},
                   {"where", one.where},
                   {"saving_seconds", null_or(one.seconds)},
                   {"sentence", one.sentence}});
  }
  return all;
}

Json report_json(const Verdict& verdict) {
  return {{"cause", name_of(verdict.cause)},
          {"rank", verdict.rank < 0 ? Json() : Json(verdict.rank)},
          {"where", verdict.where},
          {"step_seconds", verdict.step_seconds},
          {"lost_seconds", verdict.lost_seconds},
          {"saving_seconds", null_or(verdict.saving_seconds)},
          {"sentence", verdict.sentence},
          {"causes", report_json(verdict.causes)}};
}

Json report_json(const StepParts& one) {
  return {{"rank", one.rank},
          {"seconds", one.seconds},
          {"compute", one.compute},
          {"data", one.data},
          {"exposed_transfer", one.exposed_transfer},
          {"skew", one.skew},
          {"cpu", one.cpu}};
}

/// Parts of the computing of a rank, null where they are not recorded.
void add_compute_parts(const std::vector<ComputeParts>& all, Json& of_rank) {
  const auto found = std::ranges::find(all, of_rank["rank"].get<int>(), &ComputeParts::rank);
  const bool is_known = found != all.end();
  of_rank["forward"] = is_known ? Json(found->forward) : Json();
  of_rank["backward"] = is_known ? Json(found->backward) : Json();
  of_rank["optimizer"] = is_known ? Json(found->optimizer) : Json();
  of_rank["other"] = is_known ? Json(found->other) : Json();
}

Json report_json(const AxisFacts& one) {
  return {{"axis", one.axis},
          {"calls", one.calls},
          {"bytes", one.bytes},
          {"exposed_transfer", null_or(one.exposed_transfer)},
          {"skew", null_or(one.skew)},
          {"bytes_per_second", null_or(one.bytes_per_second)},
          {"link", one.is_network ? "network" : "host"},
          {"link_bytes_per_second",
           one.link_bytes_per_second > 0 ? Json(one.link_bytes_per_second) : Json()}};
}

Json report_json(const RunRate& rate) {
  return {{"per_second", rate.targets_per_second},
          {"of", rate.targets},
          {"flops_per_second", rate.flops_per_second},
          {"of_measured", null_or(rate.of_measured)},
          {"of_peak", null_or(rate.of_peak)},
          {"device", rate.device.empty() ? Json() : Json(rate.device)}};
}

Json calls_json(const RunRecords& run) {
  Json calls = Json::array();
  const auto sum = sum_of_steps(run);
  if (!sum) return calls;
  const auto steps = static_cast<double>(sum->steps);
  for (const CallAccount& one : sum->calls) {
    calls.push_back({{"routine", one.routine},
                     {"count", static_cast<double>(one.count) / steps},
                     {"bytes", static_cast<double>(one.bytes) / steps},
                     {"seconds", one.seconds / steps}});
  }
  return calls;
}

constexpr size_t kMaxWaitRows = 64;

Json waits_json(const RunRecords& run) {
  Json waits = Json::array();
  for (const WaitFacts& one : longest_waits(run, kMaxWaitRows)) {
    waits.push_back({{"rank", one.rank},
                     {"for", one.awaited},
                     {"routine", one.routine.empty() ? Json() : Json(one.routine)},
                     {"seconds", one.seconds}});
  }
  return waits;
}

Json points_json(const std::vector<TrainingLog::Point>& points) {
  Json json = Json::array();
  for (const TrainingLog::Point& one : points) json.push_back({one.step, one.value});
  return json;
}

Json outcome_json(const RunRecords& run, const OutcomeFacts& outcome) {
  Json json = {{"has_ended", outcome.has_ended},
               {"train_loss", null_or(outcome.train_loss)},
               {"validation_loss", null_or(outcome.validation_loss)},
               {"validation_losses", points_json(run.log.validation_losses)},
               {"skipped_steps", null_or(outcome.skipped_steps)},
               {"steps_without_targets", null_or(outcome.steps_without_targets)},
               {"last_failure", outcome.last_failure.empty() ? Json() : Json(outcome.last_failure)},
               {"resumed", Json::array()},
               {"warnings", Json::array()}};
  for (const auto& one : run.log.resumptions) {
    json["resumed"].push_back({{"step", one.step}, {"ranks", one.ranks}});
  }
  for (const auto& one : run.log.warnings) {
    json["warnings"].push_back({{"step", one.step}, {"warning", one.text}});
  }
  return json;
}

Json saving_json(const std::optional<SavingFacts>& saving) {
  if (!saving) return {};
  return {{"saves", saving->saves},
          {"failed", saving->failed},
          {"blocked_seconds_median", saving->blocked_median},
          {"blocked_seconds_longest", saving->blocked_longest},
          {"write_seconds_median", saving->written_median}};
}

Json memory_json(const RunRecords& run, const OutcomeFacts& outcome) {
  return {{"planned_peak_bytes", run.plan.predicted.peak_bytes_per_rank},
          {"peak_bytes", outcome.peak_bytes.empty() ? Json() : Json(outcome.peak_bytes)}};
}

Json certificate_json(const RunRecords& run) {
  const auto certificate = certificate_of(run);
  if (!certificate) return {};
  return {{"equal", certificate->equal},
          {"bits", certificate->bits},
          {"ranks", certificate->ranks},
          {"steps", certificate->steps}};
}

Json report_json(const StepTimeline& timeline) {
  Json json = {{"step", timeline.step},       {"is_slowest", timeline.is_slowest},
               {"seconds", timeline.seconds}, {"from", timeline.is_traced ? "trace" : "accounts"},
               {"note", timeline.note},       {"ranks", Json::array()}};
  for (const RankTimeline& rank : timeline.ranks) {
    Json spans = Json::array();
    for (const TimelineSpan& one : rank.spans) {
      spans.push_back(
          {name_of(one.kind), std::round(one.begin * 1e9) / 1e9, std::round(one.end * 1e9) / 1e9});
    }
    json["ranks"].push_back({{"rank", rank.rank}, {"spans", std::move(spans)}});
  }
  return json;
}

}  // namespace

std::string run_report_json(const RunRecords& run, const std::vector<StepTimeline>& timelines) {
  const Verdict verdict = judge_run(run);
  const OutcomeFacts outcome = outcome_of(run);
  const auto rate = rate_of(run, verdict);
  Json json = {{"format", kReportFormat},
               {"folder", run.folder.string()},
               {"model", run.plan.config.model.preset},
               {"ranks", run.plan.ranks},
               {"mesh", mesh_of(run.plan)},
               {"steps", last_step(run)},
               {"verdict", report_json(verdict)},
               {"products_rate", products_rate(run, verdict.step_seconds)},
               {"rate", rate ? report_json(*rate) : Json()},
               {"by_rank", Json::array()},
               {"by_axis", Json::array()},
               {"by_call", calls_json(run)},
               {"waits", waits_json(run)},
               {"memory", memory_json(run, outcome)},
               {"outcome", outcome_json(run, outcome)},
               {"checkpoints", saving_json(outcome.saving)},
               {"certificate", certificate_json(run)},
               {"plan_against_run", base::parse_json(to_json(outcome.comparisons)).or_throw()},
               {"timelines", Json::array()}};
  const std::vector<ComputeParts> computing = compute_parts_of(run);
  for (const StepParts& one : mean_parts(run)) {
    json["by_rank"].push_back(report_json(one));
    add_compute_parts(computing, json["by_rank"].back());
  }
  for (const AxisFacts& one : axes_of(run)) json["by_axis"].push_back(report_json(one));
  for (const StepTimeline& one : timelines) json["timelines"].push_back(report_json(one));
  return base::dump(json, 1) + "\n";
}

}  // namespace hanji::report
