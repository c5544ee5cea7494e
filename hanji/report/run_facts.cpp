#include "hanji/report/run_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>

#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/plan/device_spec.h"
#include "hanji/plan/model_family.h"

namespace hanji::report {
namespace {

using base::Json;

std::optional<double> summary_number(const Json& json, const char* name) {
  if (!json.is_object() || !json.contains(name) || !json[name].is_number()) return std::nullopt;
  return json[name].get<double>();
}

std::optional<int64_t> summary_integer(const Json& json, const char* name) {
  if (!json.is_object() || !json.contains(name) || !json[name].is_number_integer()) {
    return std::nullopt;
  }
  return json[name].get<int64_t>();
}

/// The row of plan::known_devices() whose name, up to its memory, is a word of the driver's name of a GPU.
const plan::DeviceSpec* device_of_gpus(const plan::Plan& plan) {
  if (!plan.times.gpu) return nullptr;
  std::string name;
  for (const char c : plan.times.gpu->device) {
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const plan::DeviceSpec& one : plan::known_devices()) {
    const std::string stem = one.name.substr(0, one.name.find('-'));
    const size_t at = name.find(stem);
    const auto is_word = [&](size_t i) { return i < name.size() && std::isalnum(name[i]) != 0; };
    if (at != name.npos && (at == 0 || !is_word(at - 1)) && !is_word(at + stem.size())) return &one;
  }
  return nullptr;
}

/// The ranks among which the calls of an axis of an account are.
std::vector<int> group_of_axis(const plan::Plan& plan, const std::string& axis) {
  if (axis == "data") return plan.mesh.gradient_group(0);
  if (axis == "peers") return plan.mesh.data_peers(0);
  auto members = plan.mesh.members(0, axis);
  return members.ok() ? *std::move(members) : std::vector<int>{0};
}

std::optional<SavingFacts> saving_of(const Json& summary) {
  if (!summary.contains("checkpoint")) return std::nullopt;
  const Json& json = summary["checkpoint"];
  return SavingFacts{.saves = summary_integer(json, "saves").value_or(0),
                     .failed = summary_integer(json, "failed_saves").value_or(0),
                     .blocked_median = summary_number(json, "blocked_seconds_median").value_or(0),
                     .blocked_longest = summary_number(json, "blocked_seconds_max").value_or(0),
                     .written_median = summary_number(json, "write_seconds_median").value_or(0)};
}

/// The sentence and the table of `hanji debug` when the last rank of a failed try ended.
std::string failure_of(const RunRecords& run) {
  const auto flight = base::parse_json(run.flight);
  if (!flight.ok() || !flight->is_object() || !flight->contains("text")) return "";
  return (*flight)["text"].is_string() ? (*flight)["text"].get<std::string>() : "";
}

}  // namespace

std::optional<RunRate> rate_of(const RunRecords& run, const Verdict& verdict) {
  if (verdict.step_seconds <= 0) return std::nullopt;
  const plan::Plan& plan = run.plan;
  const double targets = static_cast<double>(plan.config.train.global_batch) *
                         static_cast<double>(plan.model.targets_per_sample);
  RunRate rate{.step_seconds = verdict.step_seconds,
               .targets_per_second = targets / verdict.step_seconds,
               .targets = plan::targets_of(plan::family_of(plan.config.model).data)};
  rate.flops_per_second =
      plan::facts_of_whole(plan.config, plan.model).flops_per_target() * rate.targets_per_second;
  const double measured = products_rate(run, verdict.step_seconds);
  if (measured > 0) rate.of_measured = measured;
  const plan::DeviceSpec* device = device_of_gpus(plan);
  if (device != nullptr && device->flops > 0) {
    rate.device = device->name;
    rate.of_peak = rate.flops_per_second / (device->flops * plan.ranks);
  }
  return rate;
}

std::optional<StepAccount> sum_of_steps(const RunRecords& run) {
  std::optional<StepAccount> sum;
  for (const RankSteps& rank : run.ranks) {
    for (size_t i = 1; i < rank.accounts.size(); ++i) {
      if (sum) {
        add(*sum, rank.accounts[i]);
      } else {
        sum = rank.accounts[i];
      }
    }
  }
  return sum;
}

std::vector<AxisFacts> axes_of(const RunRecords& run) {
  std::vector<AxisFacts> all;
  const auto sum = sum_of_steps(run);
  if (!sum) return all;
  const auto steps = static_cast<double>(sum->steps);
  for (const AxisAccount& one : sum->axes) {
    AxisFacts facts{.axis = one.axis,
                    .calls = static_cast<double>(one.calls) / steps,
                    .bytes = static_cast<double>(one.bytes) / steps};
    if (one.exposed_transfer) facts.exposed_transfer = *one.exposed_transfer / steps;
    if (one.skew) facts.skew = *one.skew / steps;
    if (facts.exposed_transfer.value_or(0) > 0) {
      facts.bytes_per_second = facts.bytes / *facts.exposed_transfer;
    }
    const plan::HostLayout& hosts = run.plan.hosts;
    facts.is_network =
        hosts.several() && hosts_of(hosts, group_of_axis(run.plan, one.axis)).several();
    const bool on_gpus = run.plan.config.compute.device == plan::Device::kCuda;
    facts.link_bytes_per_second = facts.is_network ? hosts.link.bytes_per_second
                                  : on_gpus        ? 0
                                                   : run.plan.rates.memory_bytes_per_second;
    all.push_back(std::move(facts));
  }
  return all;
}

std::vector<WaitFacts> longest_waits(const RunRecords& run, size_t most) {
  std::vector<WaitFacts> all;
  for (const RankSteps& rank : run.ranks) {
    std::map<std::pair<int, std::string>, double> sums;
    int64_t steps = 0;
    for (size_t i = 1; i < rank.accounts.size(); ++i) {
      steps += rank.accounts[i].steps;
      for (const WaitAccount& one : rank.accounts[i].waits) {
        sums[{one.rank, one.routine}] += one.seconds;
      }
    }
    for (const auto& [of, seconds] : sums) {
      all.push_back({rank.rank, of.first, of.second, seconds / static_cast<double>(steps)});
    }
  }
  std::ranges::stable_sort(all, std::greater(), &WaitFacts::seconds);
  if (all.size() > most) all.resize(most);
  return all;
}

std::vector<ComputeParts> compute_parts_of(const RunRecords& run) {
  std::vector<ComputeParts> all;
  for (const RankSteps& rank : run.ranks) {
    ComputeParts parts{.rank = rank.rank};
    double compute = 0, steps = 0;
    for (size_t i = 1; i < rank.accounts.size(); ++i) {
      const StepAccount& one = rank.accounts[i];
      parts.forward += one.forward;
      parts.backward += one.backward;
      parts.optimizer += one.optimizer;
      compute += compute_seconds(one).value_or(0);
      steps += static_cast<double>(one.steps);
    }
    const double known = parts.forward + parts.backward + parts.optimizer;
    if (compute <= 0 || known <= 0) continue;
    parts.other = std::max(0.0, compute - known);
    for (double* one : {&parts.forward, &parts.backward, &parts.optimizer, &parts.other}) {
      *one /= steps;
    }
    all.push_back(parts);
  }
  return all;
}

OutcomeFacts outcome_of(const RunRecords& run) {
  const auto summary = base::parse_json(run.summary);
  if (!summary.ok()) return {.last_failure = failure_of(run)};
  OutcomeFacts outcome{.has_ended = true,
                       .train_loss = summary_number(*summary, "train_loss"),
                       .validation_loss = summary_number(*summary, "validation_loss"),
                       .skipped_steps = summary_integer(*summary, "skipped_steps"),
                       .steps_without_targets = summary_integer(*summary, "steps_without_targets"),
                       .saving = saving_of(*summary),
                       .last_failure = failure_of(run),
                       .step_seconds = summary_number(*summary, "step_seconds_median")};
  if (summary->contains("prediction")) {
    outcome.comparisons = comparisons_from_json(base::dump((*summary)["prediction"]));
  }
  if (summary->contains("peak_bytes") && (*summary)["peak_bytes"].is_array()) {
    for (const Json& one : (*summary)["peak_bytes"]) {
      if (one.is_number_integer()) outcome.peak_bytes.push_back(one.get<int64_t>());
    }
  }
  return outcome;
}

std::optional<CertificateFacts> certificate_of(const RunRecords& run) {
  const auto json = base::parse_json(run.certificate);
  if (!json.ok() || !json->is_object() || !json->contains("verdict")) return std::nullopt;
  CertificateFacts facts{.equal = (*json)["verdict"] == "equal",
                         .ranks = summary_integer(*json, "ranks").value_or(0),
                         .steps = summary_integer(*json, "steps_run").value_or(0)};
  if (json->contains("bits") && (*json)["bits"].is_string()) {
    facts.bits = (*json)["bits"].get<std::string>();
  }
  return facts;
}

std::string mesh_of(const plan::Plan& plan) {
  std::string text;
  for (const layout::Axis& axis : plan.mesh.axes()) {
    if (axis.degree == 1) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, axis.degree);
  }
  return text.empty() ? "one rank" : text;
}

std::string machine_of(const plan::Plan& plan) {
  std::string text = fmt::format("{} of {}", base::counted(plan.ranks, "rank"),
                                 base::counted(plan.threads, "thread"));
  if (plan.config.compute.device == plan::Device::kCuda) {
    text += plan.times.gpu ? ", a GPU each: " + plan.times.gpu->device : ", a GPU each";
  }
  if (plan.hosts.several()) {
    text += fmt::format(" on {}", base::counted(std::ssize(plan.hosts.ranks), "host"));
  }
  const bool is_pinned =
      !plan.cpus.empty() && std::ranges::none_of(plan.cpus, &std::vector<int>::empty);
  text += is_pinned ? ", each on processors of its own" : ", not pinned to processors";
  return text;
}

}  // namespace hanji::report
