#include <fmt/format.h>

#include <cmath>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/report/compare_runs.h"

namespace hanji::report {
namespace {

using base::Json;
using base::TextTable;

constexpr size_t kMaxKeys = 8;
constexpr int kComparisonHanging = 13;

std::string run_line(std::string_view name, const ComparedRun& run) {
  return fmt::format("{:<13}{}: {}; {}\n", name, run.folder, run.description,
                     run.lines == 0
                         ? "no steps after the first"
                         : fmt::format("steps {}-{}, correlated over {:.1f}", run.first_step,
                                       run.last_step, run.correlation_time));
}

std::string configuration_text(const RunComparison& all, int columns) {
  if (all.is_one_run) return "";
  if (all.configuration.empty()) return "\nconfigured   alike\n";
  using enum TextTable::Align;
  TextTable table({{"configured", kLeft}, {"A", kLeft}, {"B", kLeft}});
  for (size_t i = 0; i < std::min(kMaxKeys, all.configuration.size()); ++i) {
    const ConfigurationChange& one = all.configuration[i];
    table.add({one.key, one.before, one.after});
  }
  std::string text = "\n" + table.text(columns);
  if (all.configuration.size() > kMaxKeys) {
    text += fmt::format("and {} more; --json has all\n", all.configuration.size() - kMaxKeys);
  }
  return text;
}

std::string signed_seconds(double seconds) {
  return (seconds < 0 ? "-" : "+") + base::format_seconds(std::abs(seconds));
}

std::vector<std::string> row_of(const PartChange& part) {
  std::string name(name_of(part.part));
  if (part.rank >= 0) name = fmt::format("{}, rank {}", name, part.rank);
  if (!part.axis.empty()) name = fmt::format("{}, axis {}", name, part.axis);
  if (!part.is_measured) return {name, "", "", "", "", std::string(outcome_of(part))};
  const MedianChange& change = part.change;
  std::vector<std::string> row = {name, base::format_seconds(change.before),
                                  base::format_seconds(change.after)};
  row.push_back(signed_seconds(change.after - change.before));
  row.push_back(change.is_told() ? fmt::format("{} to {}", signed_seconds(change.low),
                                               signed_seconds(change.high))
                                 : "");
  row.emplace_back(outcome_of(part));
  return row;
}

std::string table_of_parts(const RunComparison& all, int columns) {
  using enum TextTable::Align;
  TextTable table({{"median", kLeft}, {"A"}, {"B"}, {"change"}, {"between"}, {"B is", kLeft}});
  for (const PartChange& part : all.parts) table.add(row_of(part));
  for (const PartChange& part : all.details) table.add(row_of(part));
  return "\n" + table.text(columns);
}

/// A note where others had more of the CPUs than a run of its own cores leaves them.
std::string stolen_text(const RunComparison& all) {
  std::string runs;
  for (const auto& [name, run] : {std::pair{"A", &all.before}, std::pair{"B", &all.after}}) {
    if (run->cpu_share >= kLeastCpuShare) continue;
    runs += fmt::format("{}{:.0f} % of the time in which ranks of {} computed",
                        runs.empty() ? "" : ", and ", 100 * (1 - run->cpu_share), name);
  }
  if (runs.empty()) return "";
  return fmt::format("note         other processes took {}; what differs may be theirs\n", runs);
}

Json value_of(const ComparedRun& run) {
  return {{"folder", run.folder},
          {"first_step", run.first_step},
          {"last_step", run.last_step},
          {"steps", run.lines},
          {"correlation_time", run.correlation_time},
          {"cpu_share", run.cpu_share}};
}

Json value_of(const PartChange& part) {
  const bool is_told = part.is_measured && part.change.is_told();
  const auto or_null = [](bool is_known, double value) { return is_known ? Json(value) : Json(); };
  return {{"part", name_of(part.part)},
          {"rank", part.rank < 0 ? Json() : Json(part.rank)},
          {"axis", part.axis.empty() ? Json() : Json(part.axis)},
          {"before", or_null(part.is_measured, part.change.before)},
          {"after", or_null(part.is_measured, part.change.after)},
          {"low", or_null(is_told, part.change.low)},
          {"high", or_null(is_told, part.change.high)},
          {"outcome", outcome_of(part)}};
}

}  // namespace

std::string comparison_text(const RunComparison& all, int columns) {
  std::string text = run_line("A", all.before) + run_line("B", all.after);
  text = base::wrap(text, columns, kComparisonHanging) + configuration_text(all, columns);
  std::string verdict = fmt::format("\nverdict      {}\n", all.sentence);
  if (!all.is_one_run) {
    verdict +=
        "note         two runs also differ by their start (places of pages and ranks), which no "
        "spread of steps shows; repeat both, or compare parts of one run\n";
  }
  verdict += stolen_text(all);
  text += base::wrap(verdict, columns, kComparisonHanging);
  return text + table_of_parts(all, columns);
}

std::string comparison_json(const RunComparison& all) {
  Json json = {{"format", kComparisonFormat},  {"before", value_of(all.before)},
               {"after", value_of(all.after)}, {"one_run", all.is_one_run},
               {"told", all.is_told},          {"sentence", all.sentence},
               {"false_alarms", kFalseAlarms}, {"configuration", Json::array()},
               {"parts", Json::array()},       {"details", Json::array()}};
  for (const ConfigurationChange& one : all.configuration) {
    json["configuration"].push_back(
        {{"key", one.key}, {"before", one.before}, {"after", one.after}});
  }
  for (const PartChange& part : all.parts) json["parts"].push_back(value_of(part));
  for (const PartChange& part : all.details) json["details"].push_back(value_of(part));
  return base::dump(json, 1) + "\n";
}

}  // namespace hanji::report
