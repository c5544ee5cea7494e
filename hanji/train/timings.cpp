#include "hanji/train/timings.h"

#include <algorithm>
#include <map>
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

using Intervals = std::vector<std::pair<int64_t, int64_t>>;

double covered_seconds(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end());
  int64_t covered = 0;
  int64_t end = 0;
  for (const auto& [from, to] : intervals) {
    covered += std::max<int64_t>(0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return static_cast<double>(covered) * 1e-9;
}

double communication_median(const trace::Recorder& recorder) {
  std::map<int64_t, Intervals> by_step;
  recorder.for_each([&](const trace::Event& event) {
    if (event.category == trace::Category::kCommunication) {
      by_step[event.step].emplace_back(event.start_ns, event.end_ns);
    }
  });
  std::vector<double> seconds;
  for (auto& [step, intervals] : by_step) seconds.push_back(covered_seconds(std::move(intervals)));
  return quantile(std::move(seconds), 0.5);
}

}  // namespace

Timings timings_of(const std::vector<StepSeconds>& all, const trace::Recorder* recorder) {
  const std::span<const StepSeconds> steps = std::span(all).subspan(all.size() > 1 ? 1 : 0);
  std::vector<double> step_seconds;
  std::vector<double> compute_seconds;
  for (const StepSeconds& step : steps) {
    step_seconds.push_back(step.step);
    compute_seconds.push_back(step.step - step.data - step.exposed_communication);
  }
  Timings timings;
  timings.step_median = quantile(step_seconds, 0.5);
  timings.step_p90 = quantile(step_seconds, 0.9);
  timings.data = median_of(steps, &StepSeconds::data);
  timings.compute = quantile(compute_seconds, 0.5);
  timings.exposed_communication = median_of(steps, &StepSeconds::exposed_communication);
  timings.communication =
      recorder ? communication_median(*recorder) : timings.exposed_communication;
  return timings;
}

}  // namespace hanji::train
