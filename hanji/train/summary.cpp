#include "hanji/train/summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/data/statistics.h"
#include "hanji/report/plan_against_run.h"
#include "hanji/train/speed_record.h"

namespace hanji::train {
namespace {

double tokens_per_second(const plan::Plan& plan, const Timings& timings) {
  const auto tokens = static_cast<double>(plan.config.train.global_batch * plan.model.block);
  return timings.step_median > 0 ? tokens / timings.step_median : 0;
}

report::Measured measured_of(const plan::Plan& plan, const Measurement& run) {
  const Timings& timings = run.timings;
  report::Measured measured;
  measured.step_seconds = timings.step_median;
  measured.compute_seconds = timings.compute;
  measured.communication_seconds = timings.communication;
  measured.exposed_communication_seconds = timings.exposed_communication;
  measured.data_seconds = timings.data;
  measured.tokens_per_second = tokens_per_second(plan, timings);
  measured.peak_bytes_per_rank = *std::max_element(run.peak_bytes.begin(), run.peak_bytes.end());
  measured.memory = run.memory;
  measured.one_rank_tokens_per_second = remember_speed(plan, tokens_per_second(plan, timings));
  return measured;
}

base::Json summary_json(const plan::Plan& plan, const Measurement& run,
                        const report::Measured& measured) {
  const Timings& timings = run.timings;
  base::Json json;
  json["steps"] = run.outcome.steps_done;
  json["ranks"] = plan.ranks;
  json["train_loss"] = run.outcome.train_loss;
  json["validation_loss"] = run.outcome.validation_loss;
  json["params_sha256"] = run.hashes.parameters;
  json["state_sha256"] = run.hashes.state;
  json["tokens_per_second"] = *measured.tokens_per_second;
  json["step_seconds_median"] = timings.step_median;
  json["step_seconds_p90"] = timings.step_p90;
  json["compute_seconds"] = timings.compute;
  json["communication_seconds"] = timings.communication;
  json["exposed_communication_seconds"] = timings.exposed_communication;
  json["data_seconds"] = timings.data;
  json["first_step_seconds"] = run.first_step_seconds;
  json["peak_bytes_per_rank"] = *measured.peak_bytes_per_rank;
  json["peak_bytes"] = run.peak_bytes;
  json["skipped_steps"] = run.outcome.num_skipped;
  json["plan"] = base::parse_json(plan::to_json(plan)).or_throw();
  json["prediction"] =
      base::parse_json(report::to_json(report::compare(plan, measured))).or_throw();
  if (const auto scaling = report::scaling(plan, measured)) {
    json["speed_up"] = scaling->speed_up;
    json["efficiency"] = scaling->efficiency;
  }
  return json;
}

std::string losses_text(const Dataset& dataset, const LoopOutcome& outcome,
                        const std::optional<data::BigramEntropy>& bigrams) {
  std::string text = fmt::format("train loss {:.4f}", outcome.train_loss);
  if (outcome.validation_loss > 0) {
    text += fmt::format(", validation loss {:.4f} nats per token", outcome.validation_loss);
  }
  if (bigrams) {
    text += fmt::format("; bigram entropy of {} {:.4f}", dataset.name, bigrams->text_nats);
  }
  return text + "\n";
}

}  // namespace

Summary summarise(const plan::Plan& plan, const Dataset& dataset, const Measurement& run) {
  const report::Measured measured = measured_of(plan, run);
  std::optional<data::BigramEntropy> bigrams;
  if (auto entropy = data::bigram_entropy(dataset.samples, dataset.num_ids); entropy.ok()) {
    bigrams = *entropy;
  }
  base::Json json = summary_json(plan, run, measured);
  if (bigrams) json["bigram_entropy"] = bigrams->text_nats;
  Summary summary;
  summary.json = json.dump(2) + "\n";
  summary.text =
      "\n" + report::table(plan, measured) +
      fmt::format("first step after {}\n", base::format_seconds(run.first_step_seconds)) +
      losses_text(dataset, run.outcome, bigrams);
  return summary;
}

}  // namespace hanji::train
