#include "hanji/report/scaling_law.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "hanji/base/random.h"
#include "hanji/cost/nonnegative.h"
#include "hanji/report/blocks.h"

namespace hanji::report {
namespace {

using cost::Equation;

constexpr double kConfidence = 0.9;
constexpr double kKeptLaws = 0.95;  // of resampled ones: see speed_up_interval()

/// The mean of the middle half by seconds.
ScalingStep middle_of(std::vector<ScalingStep> steps) {
  std::ranges::stable_sort(steps, {}, &ScalingStep::seconds);
  const size_t first = steps.size() / 4, end = steps.size() - steps.size() / 4;
  ScalingStep mean;
  for (size_t i = first; i < end; ++i) {
    mean.compute += steps[i].compute;
    mean.transfer += steps[i].transfer;
    mean.skew += steps[i].skew;
  }
  const auto count = static_cast<double>(end - first);
  return {mean.compute / count, mean.transfer / count, mean.skew / count};
}

/// sqrt(2 ln p), the growth of the largest of p normal values.
double maximum_of(double ranks) { return std::sqrt(2 * std::log(ranks)); }

/// The unknowns of equations of which those without a value say nothing.
std::vector<double> solve(std::vector<Equation> equations, size_t unknowns) {
  std::erase_if(equations, [](const Equation& one) { return one.value <= 0; });
  if (equations.empty()) return std::vector<double>(unknowns);
  return cost::solve_nonnegative(equations);
}

void fit_compute(std::span<const ScalingPoint> points, bool has_parts, ScalingLaw& law) {
  const bool is_fixed = law.batch == BatchRule::kFixed;
  const size_t unknowns = 1 + (is_fixed ? 1 : 0) + (has_parts ? 0 : 1);
  std::vector<Equation> equations;
  for (const ScalingPoint& one : points) {
    const double p = one.ranks;
    Equation equation{.usage = {is_fixed ? 1 / p : 1}, .value = one.step.compute};
    if (is_fixed) equation.usage.push_back(1);
    if (!has_parts) equation.usage.push_back(p - 1);
    equations.push_back(std::move(equation));
  }
  const std::vector<double> x = solve(std::move(equations), unknowns);
  law.shared = x[0];
  if (is_fixed) law.serial = x[1];
  if (!has_parts) law.latency = x.back();
}

void fit_communication(std::span<const ScalingPoint> points, ScalingLaw& law) {
  const auto moving = std::ranges::count_if(
      points, [](const ScalingPoint& one) { return one.ranks > 1 && one.step.transfer > 0; });
  std::vector<Equation> transfers, skews;
  for (const ScalingPoint& one : points) {
    if (one.ranks == 1) continue;
    const double p = one.ranks;
    transfers.push_back({.usage = {p - 1}, .value = one.step.transfer});
    if (moving > 1) transfers.back().usage.push_back((p - 1) / p);
    skews.push_back({.usage = {maximum_of(p)}, .value = one.step.skew});
  }
  const std::vector<double> x = solve(std::move(transfers), 2);
  law.latency = x[0];
  if (moving > 1) law.volume = x[1];
  law.noise = solve(std::move(skews), 1)[0];
}

/// Runs of as many ranks, with the length of their blocks.
struct Blocked {
  const ScalingSeries* series;
  size_t length;
};

std::map<int, std::vector<Blocked>> blocked_by_ranks(std::span<const ScalingSeries> runs) {
  std::map<int, std::vector<Blocked>> sizes;
  for (const ScalingSeries& one : runs) {
    std::vector<double> seconds;
    for (const ScalingStep& step : one.steps) seconds.push_back(step.seconds());
    sizes[one.ranks].push_back({&one, block_length(seconds.size(), correlation_time(seconds))});
  }
  return sizes;
}

/// Steps of as many runs of a size as there are, drawn with replacement, and of their blocks.
std::vector<ScalingStep> drawn_steps(const std::vector<Blocked>& runs, uint64_t key,
                                     uint64_t draw) {
  std::vector<ScalingStep> steps;
  for (uint64_t i = 0; i < runs.size(); ++i) {
    const auto words = base::Philox::draw(key, draw, i);
    const Blocked& run =
        runs[static_cast<size_t>(base::uniform(words[0]) * static_cast<double>(runs.size()))];
    const auto& of = run.series->steps;
    for (const size_t at : draw_blocks(of.size(), run.length, base::mix(key, i), draw)) {
      steps.push_back(of[at]);
    }
  }
  return steps;
}

}  // namespace

std::vector<ScalingPoint> scaling_points(std::span<const ScalingSeries> runs) {
  std::map<int, std::vector<ScalingStep>> sizes;
  for (const ScalingSeries& one : runs) {
    auto& steps = sizes[one.ranks];
    steps.insert(steps.end(), one.steps.begin(), one.steps.end());
  }
  std::vector<ScalingPoint> points;
  for (auto& [ranks, steps] : sizes) points.push_back({ranks, middle_of(std::move(steps))});
  return points;
}

double ScalingLaw::compute(double ranks) const {
  return serial + (batch == BatchRule::kFixed ? shared / ranks : shared);
}

double ScalingLaw::transfer(double ranks) const { return (ranks - 1) * (latency + volume / ranks); }

double ScalingLaw::skew(double ranks) const { return noise * maximum_of(ranks); }

double ScalingLaw::speed_up(double ranks) const {
  const double times = seconds(1) / seconds(ranks);
  return batch == BatchRule::kFixed ? times : times * ranks;
}

double ScalingLaw::serial_share() const {
  const double all = serial + shared;
  return all > 0 ? serial / all : 0;
}

double ScalingLaw::bound(double ranks) const {
  if (ranks <= 1) return 1;
  if (batch == BatchRule::kFixed) {
    const double s = serial_share();
    return 1 / (s + (1 - s) / ranks);
  }
  return ranks;
}

int ScalingLaw::best_ranks(int most) const {
  int best = 1;
  for (int ranks = 2; ranks <= most; ++ranks) {
    if (seconds(ranks) < seconds(best)) best = ranks;
  }
  return best;
}

ScalingLaw fit_scaling(std::span<const ScalingPoint> points, BatchRule batch, bool has_parts) {
  ScalingLaw law{.batch = batch};
  fit_compute(points, has_parts, law);
  if (has_parts) fit_communication(points, law);
  return law;
}

std::vector<ScalingLaw> resampled_laws(std::span<const ScalingSeries> runs, BatchRule batch,
                                       bool has_parts) {
  const auto sizes = blocked_by_ranks(runs);
  std::vector<ScalingLaw> laws;
  for (uint64_t draw = 0; draw < kLaws; ++draw) {
    std::vector<ScalingPoint> points;
    for (const auto& [ranks, of_size] : sizes) {
      points.push_back({ranks, middle_of(drawn_steps(of_size, base::mix(1, ranks), draw))});
    }
    laws.push_back(fit_scaling(points, batch, has_parts));
  }
  return laws;
}

Interval speed_up_interval(std::span<const ScalingLaw> laws, int ranks) {
  std::vector<double> speeds;
  for (const ScalingLaw& law : laws) speeds.push_back(law.speed_up(ranks));
  const double tail = (1 - kKeptLaws) / 2;
  return {quantile(speeds, tail), quantile(speeds, 1 - tail), kConfidence};
}

}  // namespace hanji::report
