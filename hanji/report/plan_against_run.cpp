#include "hanji/report/plan_against_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/rank_memory.h"

namespace hanji::report {
namespace {

std::optional<double> as_double(std::optional<int64_t> value) {
  if (!value) return std::nullopt;
  return static_cast<double>(*value);
}

std::optional<double> memory_of(const Measured& measured, std::string_view category) {
  for (const plan::MemoryLine& line : measured.memory) {
    if (line.category == category) return static_cast<double>(line.bytes);
  }
  return std::nullopt;
}

std::string shown(Unit unit, double value) {
  const auto whole = static_cast<int64_t>(std::clamp(value, 0.0, 9e18));
  switch (unit) {
    case Unit::kSeconds: return base::format_seconds(value);
    case Unit::kBytes: return base::format_bytes(whole);
    case Unit::kCount:
    case Unit::kPerSecond: return base::format_count(whole);
  }
  return "";
}

std::string shown_or_dash(Unit unit, const std::optional<double>& value) {
  return value ? shown(unit, *value) : "-";
}

/// "+4.2 %"; beyond a factor of ten as a factor, which reads better than thousands of percent.
std::string shown_error(const Comparison& line) {
  const auto error = line.error();
  if (!error) return "-";
  if (*error > 9) return fmt::format("x{:.3g}", *error + 1);
  return fmt::format("{:+.1f} %", *error * 100);
}

/// By how much of a step a time was missed: a part of microseconds may be far off and not matter.
std::string shown_of_step(const Comparison& line, const std::optional<double>& step_seconds) {
  if (line.unit != Unit::kSeconds || !line.predicted || !line.measured) return "";
  if (step_seconds.value_or(0) <= 0) return "";
  return fmt::format("{:+.1f} %", (*line.predicted - *line.measured) / *step_seconds * 100);
}

/// To the thread that reads it, waiting for its page included.
double seconds_of_a_sample(const plan::Plan& plan) {
  const double timed = plan.times.sample_seconds;
  const int64_t samples = largest_share(plan);
  if (plan.config.data.workers > 0 || samples == 0) return timed;
  return std::max(timed, plan.predicted.data_seconds / static_cast<double>(samples));
}

bool on_gpus(const plan::Plan& plan) { return plan.config.compute.device == plan::Device::kCuda; }

/// On GPUs nothing is known of transfer and skew: with several ranks compute has no measurement of its own, and
/// the step no prediction.
std::vector<Comparison> compare_gpu_step(const plan::Plan& plan, const Measured& m) {
  if (!plan.times.gpu) return {};
  const plan::Prediction& p = plan.predicted;
  const bool is_alone = plan.ranks == 1;
  const std::optional<double> none;
  return {
      {"compute_seconds", Unit::kSeconds, p.compute_seconds, is_alone ? m.compute_seconds : none},
      {"data_seconds", Unit::kSeconds, p.data_seconds, m.data_seconds},
      {"step_seconds", Unit::kSeconds, is_alone ? p.step_seconds : none, m.step_seconds},
      {rate_name(plan.config.model), Unit::kPerSecond, is_alone ? p.tokens_per_second : none,
       m.tokens_per_second}};
}

/// What is predicted of a step's time and traffic.
std::vector<Comparison> compare_step(const plan::Plan& plan, const Measured& m) {
  if (on_gpus(plan)) return compare_gpu_step(plan, m);
  const plan::Prediction& p = plan.predicted;
  std::vector<Comparison> lines = {
      {"compute_seconds", Unit::kSeconds, p.compute_seconds, m.compute_seconds},
      {"transfer_seconds", Unit::kSeconds, p.transfer_seconds, m.transfer_seconds},
      {"exposed_transfer_seconds", Unit::kSeconds, p.exposed_transfer_seconds,
       m.exposed_transfer_seconds},
      {"hidden_transfer_seconds", Unit::kSeconds, p.hidden_transfer_seconds,
       m.hidden_transfer_seconds},
      {"skew_seconds", Unit::kSeconds, std::nullopt, m.skew_seconds},
      {"data_seconds", Unit::kSeconds, p.data_seconds, m.data_seconds},
      {"step_seconds", Unit::kSeconds, p.step_seconds, m.step_seconds},
      {rate_name(plan.config.model), Unit::kPerSecond, p.tokens_per_second, m.tokens_per_second},
      {"wire_bytes_per_step", Unit::kBytes, static_cast<double>(p.wire_bytes_per_step),
       as_double(m.wire_bytes_per_step)},
  };
  if (!plan.config.data.files.empty() && plan.times.sample_seconds > 0) {
    const auto data = std::ranges::find(lines, "data_seconds", &Comparison::name);
    lines.insert(data + 1, {"thread_reads_per_second", Unit::kPerSecond,
                            1 / seconds_of_a_sample(plan), m.thread_reads_per_second});
  }
  if (plan.ranks > 1) {
    lines.push_back({"collectives_per_step", Unit::kCount,
                     static_cast<double>(p.collectives_per_step),
                     as_double(m.collectives_per_step)});
  }
  if (plan.hosts.several()) {
    lines.push_back({"network_bytes_per_step", Unit::kBytes,
                     static_cast<double>(p.network_bytes_per_step),
                     as_double(m.network_bytes_per_step)});
  }
  return lines;
}

base::Json or_null(const std::optional<double>& value) {
  return value ? base::Json(*value) : base::Json(nullptr);
}

Unit unit_of(std::string_view name) {
  if (name.ends_with("_per_second")) return Unit::kPerSecond;
  if (name.ends_with("_seconds")) return Unit::kSeconds;
  const bool is_bytes = name.starts_with("memory.") || name.find("bytes") != name.npos;
  return is_bytes ? Unit::kBytes : Unit::kCount;
}

}  // namespace

std::optional<double> Comparison::error() const {
  if (!predicted || !measured) return std::nullopt;
  if (*measured == 0) return *predicted == 0 ? std::optional(0.0) : std::nullopt;
  return *predicted / *measured - 1;
}

std::vector<Comparison> compare(const plan::Plan& plan, const Measured& m) {
  std::vector<Comparison> lines = compare_step(plan, m);
  const bool of_others = !m.planned_memory.empty();
  for (const plan::MemoryLine& line : of_others ? m.planned_memory : plan.memory) {
    lines.push_back({"memory." + line.category, Unit::kBytes, static_cast<double>(line.bytes),
                     memory_of(m, line.category)});
  }
  lines.push_back({"peak_bytes_per_rank", Unit::kBytes,
                   static_cast<double>(plan.predicted.peak_bytes_per_rank),
                   as_double(m.peak_bytes_per_rank)});
  if (plan.config.compute.device == plan::Device::kCuda) {
    lines.push_back({"gpu_peak_bytes_per_rank", Unit::kBytes,
                     static_cast<double>(plan::device_bytes(plan.memory)),
                     as_double(m.gpu_peak_bytes_per_rank)});
    lines.push_back(
        {"gpu_reserved_bytes", Unit::kBytes, std::nullopt, as_double(m.gpu_reserved_bytes)});
  }
  if (plan.process.private_bytes == 0) return lines;
  lines.push_back({"process_bytes_per_rank", Unit::kBytes,
                   static_cast<double>(plan.process.private_bytes),
                   as_double(m.process_bytes_per_rank)});
  lines.push_back({"resident_bytes_per_rank", Unit::kBytes,
                   static_cast<double>(plan::resident_bytes(plan)),
                   as_double(m.resident_bytes_per_rank)});
  return lines;
}

std::vector<ComparisonRow> rows_of(const std::vector<Comparison>& comparisons,
                                   const std::optional<double>& step_seconds) {
  std::vector<ComparisonRow> rows;
  for (const Comparison& line : comparisons) {
    rows.push_back({line.name, shown_or_dash(line.unit, line.predicted),
                    shown_or_dash(line.unit, line.measured), shown_error(line),
                    shown_of_step(line, step_seconds)});
  }
  return rows;
}

std::optional<Scaling> scaling(const plan::Plan& plan, const Measured& measured) {
  const double many = measured.tokens_per_second.value_or(0);
  const double one = measured.one_rank_tokens_per_second.value_or(0);
  if (many <= 0 || one <= 0) return std::nullopt;
  return Scaling{many / one, many / one / plan.ranks};
}

std::string table(const plan::Plan& plan, const Measured& measured) {
  std::string out = fmt::format("{:<26}{:>14}{:>13}{:>12}{:>13}\n", "plan against run", "predicted",
                                "measured", "error", "of a step");
  for (const ComparisonRow& one : rows_of(compare(plan, measured), measured.step_seconds)) {
    const std::string row = fmt::format("{:<26}{:>14}{:>13}{:>12}{:>13}", one.name, one.predicted,
                                        one.measured, one.error, one.of_step);
    out += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  if (on_gpus(plan) && plan.ranks > 1) {
    out += "transfer and skew are in no line: NCCL does not report when the last rank arrived\n";
  }
  return out;
}

std::string to_json(const std::vector<Comparison>& comparisons) {
  base::Json json = base::Json::object();
  for (const Comparison& line : comparisons) {
    json[line.name] = {{"predicted", or_null(line.predicted)},
                       {"measured", or_null(line.measured)},
                       {"error", or_null(line.error())}};
  }
  return base::dump(json);
}

std::vector<Comparison> comparisons_from_json(std::string_view json) {
  std::vector<Comparison> lines;
  const auto parsed = base::parse_json(json);
  if (!parsed.ok() || !parsed->is_object()) return lines;
  for (const auto& [name, line] : parsed->items()) {
    if (!line.is_object()) continue;
    const auto number = [&line = line](const char* key) {
      const auto found = line.find(key);
      return found != line.end() && found->is_number() ? std::optional(found->get<double>())
                                                       : std::nullopt;
    };
    lines.push_back({name, unit_of(name), number("predicted"), number("measured")});
  }
  return lines;
}

}  // namespace hanji::report
