#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/report/scaling.h"

namespace hanji::report {
namespace {

using base::Json;
using base::TextTable;

constexpr int kScalingHanging = 13;
constexpr int kLabel = 6;
constexpr double kLeastTerm = 1e-9;  // seconds

std::string law_text(const ScalingStudy& study) {
  const ScalingLaw& law = study.law;
  std::string text;
  const auto add = [&](double seconds, std::string_view factor) {
    if (seconds < kLeastTerm) return;
    text += fmt::format("{}{}{}", text.empty() ? "" : " + ", base::format_seconds(seconds), factor);
  };
  add(law.serial, "");
  add(law.shared, study.batch == BatchRule::kFixed ? " / p" : "");
  text += study.has_parts ? " computing" : "";
  add(law.latency, " (p - 1)");
  add(law.volume, " (p - 1) / p");
  if (study.has_parts && law.latency + law.volume > 0) text += " moving bytes";
  add(law.noise, " sqrt(2 ln p)");
  if (law.noise > 0) text += " waiting";
  return text;
}

std::string bound_text(const ScalingStudy& study) {
  if (study.batch == BatchRule::kGrows) {
    const ScalingForecast& twice = study.forecast();
    const double share = (twice.ranks - twice.speed_up) / (twice.ranks - 1);
    return fmt::format(
        "Gustafson: S = p - s (p - 1) with s = {:.1f} %, since each rank has its own work",
        100 * share);
  }
  const double share = study.law.serial_share();
  if (share < 1e-4) return "Amdahl: no part of the computing is serial, so nothing is bounded";
  return fmt::format(
      "Amdahl: {:.1f} % of the computing is done by every rank, so no number of ranks is more than "
      "{:.3g} times as fast, without any communication",
      100 * share, 1 / share);
}

std::string heading_of(const ScalingStudy& study) {
  std::string text = fmt::format(
      "scaling      {}: {}\n", study.job,
      study.batch == BatchRule::kFixed
          ? fmt::format("strong, train.global_batch = {} on all ranks together", study.global_batch)
          : "weak, train.global_batch grows with the ranks");
  text += fmt::format("law          a step of p ranks = {}\n", law_text(study));
  if (!study.has_parts) {
    text +=
        "note         the engine does not tell moving bytes from waiting; the step is fitted as a "
        "whole\n";
  }
  if (study.doubts.empty()) text += fmt::format("bound        {}\n", bound_text(study));
  return text + fmt::format("\nverdict      {}\n", study.sentence);
}

const ScalingForecast& forecast_of(const ScalingStudy& study, int ranks) {
  const auto found = std::ranges::find(study.curve, ranks, &ScalingForecast::ranks);
  return found == study.curve.end() ? study.forecast() : *found;
}

std::string table_of_sizes(const ScalingStudy& study, int columns) {
  TextTable table({{"ranks"},
                   {"step"},
                   {"compute"},
                   {"bytes"},
                   {"waits"},
                   {"speed-up"},
                   {"law"},
                   {study.batch == BatchRule::kFixed ? "Amdahl" : "at most"},
                   {"efficiency"}});
  const bool holds = study.doubts.empty();
  for (const ScalingSize& size : study.sizes) {
    const ScalingStep& step = size.point.step;
    const ScalingForecast& law = forecast_of(study, size.point.ranks);
    const auto part = [&](double seconds) {
      return study.has_parts ? base::format_seconds(seconds) : "unknown";
    };
    table.add({std::to_string(size.point.ranks), base::format_seconds(step.seconds()),
               part(step.compute), part(step.transfer), part(step.skew),
               fmt::format("{:.2f}", size.speed_up),
               holds && size.is_fitted ? fmt::format("{:.2f}", law.speed_up) : "-",
               holds ? fmt::format("{:.2f}", law.bound) : "-",
               fmt::format("{:.0f} %", 100 * size.speed_up / size.point.ranks)});
  }
  if (study.doubts.empty()) {
    const ScalingForecast& twice = study.forecast();
    table.add({fmt::format("law, {}", twice.ranks),
               base::format_seconds(study.law.seconds(twice.ranks)), "", "", "", "",
               fmt::format("{:.2f}", twice.speed_up), fmt::format("{:.2f}", twice.bound),
               fmt::format("{:.0f} %", 100 * twice.speed_up / twice.ranks)});
  }
  std::string text = "\n" + table.text(columns);
  for (const ScalingSize& size : study.sizes) {
    if (size.is_fitted) continue;
    text += fmt::format(
        "{} outnumber the cores and are not fitted: they had CPUs for {:.0f} % of what they "
        "computed\n",
        base::counted(size.point.ranks, "rank"), 100 * size.cpu_share);
  }
  return text;
}

/// Bars on a line of its own for each number of ranks.
class Bars {
 public:
  Bars(const ScalingStudy& study, int columns)
      : study_(study), width_(std::max(10, columns - kLabel - 1)) {
    for (const ScalingForecast& one : study.curve) most_ = std::max(most_, one.bound);
    for (const ScalingSize& one : study.sizes) most_ = std::max(most_, one.speed_up);
  }

  std::string text() const {
    std::string text = "\nspeed-up: # measured";
    text += study_.doubts.empty() ? ", | by the law, A at most without communication, [ ] 90 %\n"
                                  : "\n";
    for (const ScalingSize& size : study_.sizes) {
      text += row(size.point.ranks, size.speed_up, size.is_fitted);
    }
    return study_.doubts.empty() ? text + row(study_.forecast().ranks, 0, true) : text;
  }

 private:
  size_t column_of(double speed_up) const {
    return static_cast<size_t>(std::lround(speed_up / most_ * (width_ - 1)));
  }

  std::string row(int ranks, double measured, bool is_fitted) const {
    std::string line(column_of(measured) + (measured > 0 ? 1 : 0), '#');
    line.resize(static_cast<size_t>(width_), ' ');
    const auto put = [&](double at, char c) { line[std::min(column_of(at), line.size() - 1)] = c; };
    if (is_fitted && study_.doubts.empty()) {
      const ScalingForecast& law = forecast_of(study_, ranks);
      put(law.bound, 'A');
      if (measured == 0) {
        put(law.interval.low, '[');
        put(law.interval.high, ']');
      }
      put(law.speed_up, '|');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return fmt::format("{:>{}} {}\n", ranks, kLabel, line);
  }

  const ScalingStudy& study_;
  int width_;
  double most_ = 1;
};

Json value_of(const ScalingSize& size, bool has_parts) {
  const auto part = [&](double seconds) { return has_parts ? Json(seconds) : Json(); };
  return {{"ranks", size.point.ranks},
          {"runs", size.runs},
          {"steps", size.steps},
          {"seconds", size.point.step.seconds()},
          {"compute", part(size.point.step.compute)},
          {"exposed_transfer", part(size.point.step.transfer)},
          {"skew", part(size.point.step.skew)},
          {"cpu_share", size.cpu_share},
          {"speed_up", size.speed_up},
          {"fitted", size.is_fitted}};
}

}  // namespace

std::string scaling_text(const ScalingStudy& study, int columns) {
  return base::wrap(heading_of(study), columns, kScalingHanging) +
         base::wrap(table_of_sizes(study, columns), columns, 2) + Bars(study, columns).text();
}

std::string scaling_json(const ScalingStudy& study) {
  const ScalingLaw& law = study.law;
  Json json = {{"format", kScalingFormat},
               {"job", study.job},
               {"batch", study.batch == BatchRule::kFixed ? "fixed" : "grows"},
               {"global_batch", study.global_batch},
               {"has_parts", study.has_parts},
               {"law",
                {{"serial", law.serial},
                 {"shared", law.shared},
                 {"latency", law.latency},
                 {"volume", law.volume},
                 {"noise", law.noise},
                 {"serial_share", law.serial_share()}}},
               {"doubts", study.doubts},
               {"sentence", study.sentence},
               {"sizes", Json::array()},
               {"curve", Json::array()}};
  for (const ScalingSize& size : study.sizes) {
    json["sizes"].push_back(value_of(size, study.has_parts));
  }
  for (const ScalingForecast& one : study.curve) {
    json["curve"].push_back({{"ranks", one.ranks},
                             {"speed_up", one.speed_up},
                             {"low", one.interval.low},
                             {"high", one.interval.high},
                             {"bound", one.bound}});
  }
  return base::dump(json, 1) + "\n";
}

}  // namespace hanji::report
