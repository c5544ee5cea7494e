#include "hanji/train/timings.h"

#include <algorithm>
#include <optional>
#include <span>

namespace hanji::train {
namespace {

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto index = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

double median_of(std::span<const StepSeconds> steps, double StepSeconds::*member) {
  std::vector<double> values;
  for (const StepSeconds& step : steps) values.push_back(step.*member);
  return quantile(std::move(values), 0.5);
}

std::optional<CallSeconds> median_calls(std::span<const StepSeconds> steps) {
  std::vector<double> transfer, exposed, skew;
  for (const StepSeconds& step : steps) {
    if (!step.calls) continue;
    transfer.push_back(step.calls->transfer);
    exposed.push_back(step.calls->exposed_transfer);
    skew.push_back(step.calls->skew);
  }
  if (transfer.empty()) return std::nullopt;
  return CallSeconds{quantile(std::move(transfer), 0.5), quantile(std::move(exposed), 0.5),
                     quantile(std::move(skew), 0.5)};
}

double sample_median(std::span<const StepSeconds> steps) {
  std::vector<double> values;
  for (const StepSeconds& step : steps) {
    const data::ReadingTime& read = step.reading;
    if (read.samples > 0) values.push_back(read.seconds / static_cast<double>(read.samples));
  }
  return quantile(std::move(values), 0.5);
}

double compute_median(std::span<const StepSeconds> steps, bool told_apart) {
  std::vector<double> values;
  for (const StepSeconds& step : steps) {
    if (step.calls.has_value() != told_apart) continue;
    const CallSeconds calls = step.calls.value_or(CallSeconds());
    values.push_back(step.step - step.data - calls.exposed_transfer - calls.skew);
  }
  return quantile(std::move(values), 0.5);
}

}  // namespace

Timings timings_of(const std::vector<StepSeconds>& all) {
  const std::span<const StepSeconds> steps = std::span(all).subspan(all.size() > 1 ? 1 : 0);
  std::vector<double> step_seconds;
  for (const StepSeconds& step : steps) step_seconds.push_back(step.step);
  Timings timings;
  timings.step_median = quantile(step_seconds, 0.5);
  timings.step_p90 = quantile(step_seconds, 0.9);
  timings.data = median_of(steps, &StepSeconds::data);
  timings.sample = sample_median(steps);
  timings.calls = median_calls(steps);
  timings.compute = compute_median(steps, timings.calls.has_value());
  return timings;
}

}  // namespace hanji::train
