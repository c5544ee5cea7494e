#include "hanji/train/summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/data/source.h"
#include "hanji/data/statistics.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/rank_memory.h"
#include "hanji/report/plan_against_run.h"
#include "hanji/report/statistics.h"
#include "hanji/train/speed_record.h"

namespace hanji::train {
namespace {

double tokens_per_second(const plan::Plan& plan, const Timings& timings) {
  const auto tokens =
      static_cast<double>(plan.config.train.global_batch * plan.model.targets_per_sample);
  return timings.step_median > 0 ? tokens / timings.step_median : 0;
}

double hidden(const CallSeconds& calls) { return calls.transfer - calls.exposed_transfer; }

report::Measured measured_of(const plan::Plan& plan, const Measurement& run) {
  const Timings& timings = run.timings;
  report::Measured measured;
  measured.step_seconds = timings.step_median;
  measured.compute_seconds = timings.compute;
  if (timings.calls) {
    measured.transfer_seconds = timings.calls->transfer;
    measured.exposed_transfer_seconds = timings.calls->exposed_transfer;
    measured.hidden_transfer_seconds = hidden(*timings.calls);
    measured.skew_seconds = timings.calls->skew;
  }
  measured.data_seconds = timings.data;
  if (timings.sample > 0) measured.thread_reads_per_second = 1 / timings.sample;
  measured.tokens_per_second = tokens_per_second(plan, timings);
  measured.peak_bytes_per_rank = *std::max_element(run.peak_bytes.begin(), run.peak_bytes.end());
  if (plan.config.compute.device == plan::Device::kCuda) {
    measured.gpu_peak_bytes_per_rank = run.gpu_peak_bytes;
    measured.gpu_reserved_bytes = run.gpu_reserved_bytes;
  }
  if (run.process_bytes > 0) measured.process_bytes_per_rank = run.process_bytes;
  if (run.resident_bytes > 0) measured.resident_bytes_per_rank = run.resident_bytes;
  measured.wire_bytes_per_step = run.wire_bytes_per_step;
  if (plan.config.compute.device == plan::Device::kCpu) {
    measured.collectives_per_step = run.outcome.collectives_per_step;
  }
  measured.network_bytes_per_step = run.network_bytes_per_step;
  measured.memory = run.memory;
  measured.planned_memory = plan::largest_lines(plan);
  measured.one_rank_tokens_per_second = remember_speed(plan, tokens_per_second(plan, timings));
  return measured;
}

double median_of(const std::vector<double>& values) {
  return values.empty() ? 0 : report::median(values);
}

/// What saving cost: the share is of one step, the one that waits for the copy.
base::Json saving_json(const Measurement& run) {
  const auto& blocked = run.saves.blocked_seconds;
  const double step = run.timings.step_median;
  base::Json json;
  json["saves"] = run.saves.written_seconds.size();
  json["failed_saves"] = run.num_failed_saves;
  json["blocked_seconds_median"] = median_of(blocked);
  json["blocked_seconds_max"] =
      blocked.empty() ? 0.0 : *std::max_element(blocked.begin(), blocked.end());
  json["blocked_share_of_step"] = step > 0 ? median_of(blocked) / step : 0.0;
  json["write_seconds_median"] = median_of(run.saves.written_seconds);
  return json;
}

std::string saving_text(const Measurement& run) {
  if (run.saves.blocked_seconds.empty()) return "";
  const double blocked = median_of(run.saves.blocked_seconds);
  const std::string failed =
      run.num_failed_saves == 0
          ? ""
          : fmt::format(" ({} failed)", base::counted(run.num_failed_saves, "save"));
  return fmt::format("{}{}: a step waited {} for each, and the disk took {} beside it\n",
                     base::counted(std::ssize(run.saves.written_seconds), "checkpoint"), failed,
                     base::format_seconds(blocked),
                     base::format_seconds(median_of(run.saves.written_seconds)));
}

std::string skipped_text(const LoopOutcome& outcome) {
  if (outcome.num_skipped == 0) return "";
  return fmt::format(
      "{} changed nothing, as train.nan = skip asks for: {} without a valid target, {} with a "
      "loss or gradient that is not finite\n",
      base::counted(outcome.num_skipped, "step"), outcome.num_without_targets,
      outcome.num_skipped - outcome.num_without_targets);
}

/// Of samples that are not only copied.
std::string reading_text(const plan::Plan& plan, const Measurement& run) {
  const plan::DataConfig& data = plan.config.data;
  if (data.workers == 0 && plan::data_kind(plan.config) != plan::DataKind::kImages) return "";
  const std::string waited = fmt::format("a step waited {} for samples, {} were predicted\n",
                                         base::format_seconds(run.timings.data),
                                         base::format_seconds(plan.predicted.data_seconds));
  if (data.workers == 0) return "samples: read by each rank before a step; " + waited;
  return fmt::format("samples: {} thread{} of each rank read {} step{} ahead; {}", data.workers,
                     data.workers == 1 ? "" : "s", data.prefetch, data.prefetch == 1 ? "" : "s",
                     waited);
}

base::Json resumptions_json(const plan::Plan& plan, const History& history) {
  base::Json json = base::Json::array();
  if (!history.found) return json;
  for (const Resumption& one : history.resumptions) {
    json.push_back({{"step", one.step}, {"ranks", one.ranks}});
  }
  json.push_back({{"step", history.steps}, {"ranks", plan.ranks}});
  return json;
}

base::Json skews_json(const Measurement& run) {
  base::Json json = base::Json::array();
  for (const int64_t ns : run.skew_ns) {
    json.push_back(ns < 0 ? base::Json(nullptr) : base::Json(static_cast<double>(ns) * 1e-9));
  }
  return json;
}

/// Which rank the others waited for; nothing for one rank, or where the engine cannot tell.
std::string skew_text(const layout::MeshShape& mesh, const Measurement& run) {
  const auto [least, most] = std::ranges::minmax_element(run.skew_ns);
  if (run.skew_ns.size() < 2 || *least < 0) return "";
  return fmt::format("a step waits {} for slower ranks on rank {}, {} on rank {}\n",
                     base::format_seconds(static_cast<double>(*most) * 1e-9),
                     name_rank(mesh, static_cast<int>(most - run.skew_ns.begin())),
                     base::format_seconds(static_cast<double>(*least) * 1e-9),
                     name_rank(mesh, static_cast<int>(least - run.skew_ns.begin())));
}

base::Json summary_json(const plan::Plan& plan, const Measurement& run,
                        const report::Measured& measured) {
  const Timings& timings = run.timings;
  base::Json json;
  json["steps"] = run.outcome.steps_done;
  json["ranks"] = plan.ranks;
  json["train_loss"] = run.outcome.train_loss;
  json["validation_loss"] = run.outcome.validation_loss;
  if (!run.metric_name.empty()) {
    json["validation_" + run.metric_name] = run.outcome.validation_metric;
  }
  json["params_sha256"] = run.hashes.parameters;
  json["state_sha256"] = run.hashes.state;
  json[plan::rate_name(plan.config.model)] = *measured.tokens_per_second;
  json["step_seconds_median"] = timings.step_median;
  json["step_seconds_p90"] = timings.step_p90;
  json["compute_seconds"] = timings.compute;
  const auto or_null = [&](const std::optional<double>& value) {
    return value ? base::Json(*value) : base::Json(nullptr);
  };
  json["transfer_seconds"] = or_null(measured.transfer_seconds);
  json["exposed_transfer_seconds"] = or_null(measured.exposed_transfer_seconds);
  json["hidden_transfer_seconds"] = or_null(measured.hidden_transfer_seconds);
  json["skew_seconds"] = or_null(measured.skew_seconds);
  json["skew_seconds_by_rank"] = skews_json(run);
  json["data_seconds"] = timings.data;
  json["first_step_seconds"] = run.first_step_seconds;
  json["peak_bytes_per_rank"] = *measured.peak_bytes_per_rank;
  json["peak_bytes"] = run.peak_bytes;
  json["skipped_steps"] = run.outcome.num_skipped;
  json["steps_without_targets"] = run.outcome.num_without_targets;
  json["checkpoint"] = saving_json(run);
  json["resumed"] = resumptions_json(plan, run.history);
  json["plan"] = base::parse_json(plan::to_json(plan)).or_throw();
  json["prediction"] =
      base::parse_json(report::to_json(report::compare(plan, measured))).or_throw();
  if (const auto scaling = report::scaling(plan, measured)) {
    json["speed_up"] = scaling->speed_up;
    json["efficiency"] = scaling->efficiency;
  }
  return json;
}

std::string losses_text(const plan::Plan& plan, const Dataset& dataset, const Measurement& run,
                        const std::optional<data::BigramEntropy>& bigrams,
                        const std::optional<data::Baseline>& baseline) {
  std::string text = fmt::format("train loss {:.4f}", run.outcome.train_loss);
  if (run.outcome.validation_loss > 0) {
    const std::string_view targets = plan::targets_of(plan::family_of(plan.config.model).data);
    text += fmt::format(", validation loss {:.4f} nats per {}", run.outcome.validation_loss,
                        targets.substr(0, targets.size() - 1));
    if (!run.metric_name.empty()) {
      text += fmt::format(", {} {:.4f}", run.metric_name, run.outcome.validation_metric);
    }
  }
  if (baseline) text += fmt::format("; {} has {:.4f}", baseline->name, baseline->value);
  if (bigrams) {
    text += fmt::format("; bigram entropy of {} {:.4f}", dataset.name, bigrams->text_nats);
  }
  return text + "\n";
}

}  // namespace

Summary summarise(const plan::Plan& plan, const Dataset& dataset, const Measurement& run) {
  const report::Measured measured = measured_of(plan, run);
  std::optional<data::BigramEntropy> bigrams;
  if (dataset.tokens) {
    const auto entropy = data::bigram_entropy(*dataset.tokens, dataset.num_ids);
    if (entropy.ok()) bigrams = *entropy;
  }
  base::Json json = summary_json(plan, run, measured);
  if (bigrams) json["bigram_entropy"] = bigrams->text_nats;
  const std::optional<data::Baseline> baseline = dataset.samples->baseline();
  if (baseline) json["baseline"] = {{"name", baseline->name}, {"value", baseline->value}};
  Summary summary;
  summary.json = base::dump(json, 2) + "\n";
  summary.text =
      "\n" + report::table(plan, measured) +
      fmt::format("first step after {}\n", base::format_seconds(run.first_step_seconds)) +
      skew_text(plan.mesh, run) + reading_text(plan, run) + saving_text(run) +
      skipped_text(run.outcome) + losses_text(plan, dataset, run, bigrams, baseline);
  return summary;
}

}  // namespace hanji::train
