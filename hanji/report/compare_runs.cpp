#include "hanji/report/compare_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include "hanji/base/units.h"
#include "hanji/plan/schema.h"

namespace hanji::report {
namespace {

constexpr std::array kParts = {StepPart::kCompute, StepPart::kData, StepPart::kTransfer,
                               StepPart::kSkew};
constexpr size_t kMaxDetails = 6;

std::string described(const plan::Plan& plan) {
  const auto axes = plan.mesh.used_axes();
  std::string mesh;
  for (const std::string& axis : axes) {
    mesh += fmt::format("{}{}={}", mesh.empty() ? "" : ",", axis, plan.mesh.degree(axis));
  }
  return fmt::format("{}, {}{}, {}", plan.config.model.preset, base::counted(plan.ranks, "rank"),
                     mesh.empty() ? "" : " (" + mesh + ")", plan::name_of(plan.kernels.precision));
}

std::string cpus_of(const plan::Plan& plan) {
  const bool is_pinned =
      std::ranges::any_of(plan.cpus, [](const auto& one) { return !one.empty(); });
  return is_pinned ? fmt::format("{}", fmt::join(plan.cpus, " ")) : "not pinned";
}

/// A run and what its ranks have done in each step.
struct Side {
  explicit Side(const RunRecords& records) : run(records), lines(step_lines(records)) {}

  Series series(const PartChange& of) const {
    if (!of.axis.empty()) return axis_series(lines, of.part, of.axis);
    if (of.rank < 0) return series_of(lines, of.part);
    const auto found = std::ranges::find(run.ranks, of.rank, &RankSteps::rank);
    return series_of(lines, of.part, static_cast<size_t>(found - run.ranks.begin()));
  }

  std::set<std::string> axes() const {
    std::set<std::string> names;
    for (const StepLine& line : lines) {
      for (const StepAccount* account : line.ranks) {
        for (const AxisAccount& one : account->axes) names.insert(one.axis);
      }
    }
    return names;
  }

  std::vector<int> ranks() const {
    std::vector<int> numbers;
    for (const RankSteps& one : run.ranks) numbers.push_back(one.rank);
    return numbers;
  }

  const RunRecords& run;
  std::vector<StepLine> lines;
};

ComparedRun compared(const Side& side) {
  ComparedRun one{.folder = side.run.folder.string(), .description = described(side.run.plan)};
  if (std::ssize(side.run.ranks) != side.run.plan.ranks) {
    one.description += fmt::format(", records of {} of them", side.run.ranks.size());
  }
  if (side.lines.empty()) return one;
  one.first_step = side.lines.front().step - side.lines.front().steps + 1;
  one.last_step = side.lines.back().step;
  one.lines = side.lines.size();
  one.cpu_share = cpu_share(side.lines);
  one.correlation_time = correlation_time(series_of(side.lines, StepPart::kStep));
  return one;
}

/// Compares all of `parts` at once.
std::vector<PartChange> changes_of(std::vector<PartChange> parts, const Side& before,
                                   const Side& after) {
  for (PartChange& part : parts) {
    const Series first = before.series(part), second = after.series(part);
    part.is_measured = !first.empty() && !second.empty();
    if (part.is_measured) {
      part.change = median_change(first, second, static_cast<int>(parts.size()));
    }
  }
  return parts;
}

double seconds_changed(const PartChange& part) { return part.change.after - part.change.before; }

/// The ranks and axes by which `part` may be told further.
std::vector<PartChange> details_of(StepPart part, const Side& before, const Side& after) {
  std::vector<PartChange> details;
  const std::vector<int> ranks = before.ranks();
  if (ranks.size() > 1 && ranks == after.ranks()) {
    for (const int rank : ranks) details.push_back({.part = part, .rank = rank});
  }
  if (part != StepPart::kTransfer && part != StepPart::kSkew) return details;
  const std::set<std::string> axes = before.axes(), others = after.axes();
  for (const std::string& axis : axes) {
    if (others.contains(axis)) details.push_back({.part = part, .axis = axis});
  }
  return details;
}

/// Those that differ, the largest changes first.
std::vector<PartChange> different_details(const std::vector<PartChange>& parts, const Side& before,
                                          const Side& after) {
  std::vector<PartChange> kept;
  for (const PartChange& part : parts) {
    if (part.part == StepPart::kStep || !part.change.differs()) continue;
    for (PartChange& one : changes_of(details_of(part.part, before, after), before, after)) {
      if (one.change.differs()) kept.push_back(std::move(one));
    }
  }
  const auto size = [](const PartChange& one) { return std::abs(seconds_changed(one)); };
  std::ranges::stable_sort(kept, std::greater(), size);
  if (kept.size() > kMaxDetails) kept.resize(kMaxDetails);
  return kept;
}

/// Why the steps of a run tell nothing; empty: they do.
std::string why_not_told(const ComparedRun& run, std::string_view name) {
  if (run.lines == 0) return fmt::format("{} has no steps after the first", name);
  const double independent = static_cast<double>(run.lines) / run.correlation_time;
  if (independent >= MedianChange::kMinIndependent) return "";
  return fmt::format(
      "{} of {}, correlated over {:.1f}, count as {:.0f} independent ones, and {:.0f} are needed",
      base::counted(static_cast<int64_t>(run.lines), "step"), name, run.correlation_time,
      std::floor(independent), MedianChange::kMinIndependent);
}

std::string in_percent(double change, double of) {
  return of > 0 ? fmt::format(" ({:+.1f} %)", 100 * change / of) : "";
}

std::string where_most(const RunComparison& all, StepPart part) {
  std::string text;
  const auto rank = std::ranges::find_if(
      all.details, [&](const PartChange& one) { return one.part == part && one.rank >= 0; });
  const auto axis = std::ranges::find_if(
      all.details, [&](const PartChange& one) { return one.part == part && !one.axis.empty(); });
  if (rank != all.details.end()) text += fmt::format(", most on rank {}", rank->rank);
  if (axis != all.details.end()) text += fmt::format(", most on the axis {}", axis->axis);
  return text;
}

/// The parts that differ, those that explain the step's change first.
std::string parts_text(const RunComparison& all, double step_change) {
  std::vector<const PartChange*> parts;
  for (const PartChange& one : all.parts) {
    if (one.part != StepPart::kStep && one.change.differs()) parts.push_back(&one);
  }
  std::ranges::stable_sort(parts, std::greater(), [&](const PartChange* one) {
    return seconds_changed(*one) * (step_change < 0 ? -1 : 1);
  });
  std::string text;
  for (const PartChange* one : parts) {
    const double change = seconds_changed(*one);
    text += fmt::format("{}{} {}{}{}", text.empty() ? "" : "; ", name_of(one->part),
                        change < 0 ? "-" : "+", base::format_seconds(std::abs(change)),
                        where_most(all, one->part));
  }
  return text;
}

/// The smallest change that would be beyond the spread: "12 %".
std::string seen_change(const MedianChange& step) {
  const double percent = 100 * (step.high - step.low) / 2 / step.before;
  return percent < 10 ? fmt::format("{:.1f} %", percent) : fmt::format("{:.0f} %", percent);
}

std::string sentence_of(const RunComparison& all) {
  if (!all.is_told) {
    const std::string first = why_not_told(all.before, "A"), second = why_not_told(all.after, "B");
    return fmt::format("cannot be told, because {}{}{}", first,
                       first.empty() || second.empty() ? "" : "; ", second);
  }
  const MedianChange& step = all.parts.front().change;
  const double change = seconds_changed(all.parts.front());
  const std::string parts = parts_text(all, change);
  if (!step.differs()) {
    return fmt::format(
        "the step has not changed beyond the spread of steps; a change of {} would have been "
        "seen{}",
        seen_change(step), parts.empty() ? "" : "; but " + parts);
  }
  return fmt::format("a step of B takes {} {}{}, beyond the spread of steps; {}",
                     base::format_seconds(std::abs(change)), change > 0 ? "longer" : "less",
                     in_percent(change, step.before),
                     parts.empty() ? "no part of it has changed beyond its own spread" : parts);
}

}  // namespace

std::vector<ConfigurationChange> configuration_changes(const plan::Plan& before,
                                                       const plan::Plan& after) {
  std::vector<ConfigurationChange> changes;
  const auto add = [&](std::string key, std::string first, std::string second) {
    if (first != second) changes.push_back({std::move(key), std::move(first), std::move(second)});
  };
  for (const plan::Key& key : plan::schema()) {
    if (key.name == "run.out") continue;
    add(std::string(key.name), plan::format_value(key, key.get(before.config)),
        plan::format_value(key, key.get(after.config)));
  }
  add("threads", std::to_string(before.threads), std::to_string(after.threads));
  add("buckets", std::to_string(before.num_buckets), std::to_string(after.num_buckets));
  add("CPUs of ranks", cpus_of(before), cpus_of(after));
  return changes;
}

RunComparison compare_runs(const RunRecords& before_run, const RunRecords& after_run) {
  const Side before(before_run), after(after_run);
  RunComparison all{.before = compared(before), .after = compared(after)};
  all.is_one_run = before_run.folder == after_run.folder;
  all.configuration = configuration_changes(before_run.plan, after_run.plan);
  all.parts = changes_of({{.part = StepPart::kStep}}, before, after);
  all.is_told = all.parts.front().is_measured && all.parts.front().change.is_told();
  std::vector<PartChange> parts;
  for (const StepPart part : kParts) parts.push_back({.part = part});
  for (PartChange& part : changes_of(parts, before, after)) all.parts.push_back(std::move(part));
  all.details = different_details(all.parts, before, after);
  all.sentence = sentence_of(all);
  return all;
}

std::string_view outcome_of(const PartChange& part) {
  if (!part.is_measured) return "not measured";
  if (!part.change.is_told()) return "not told";
  if (!part.change.differs()) return "alike";
  return part.change.low > 0 ? "longer" : "shorter";
}

}  // namespace hanji::report
