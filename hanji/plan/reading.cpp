#include "hanji/plan/reading.h"

#include <algorithm>
#include <cmath>

namespace hanji::plan {
namespace {

constexpr double kWorthwhile = 0.98;  // of the step's seconds
constexpr int64_t kMaxAhead = 8;
constexpr double kDeviations = 3;

double mean_seconds(const ReadingFacts& facts) {
  return facts.sample_seconds * static_cast<double>(facts.samples);
}

/// How many steps pass while the slowest usual one is read.
int64_t steps_to_cover(const ReadingFacts& facts, int64_t workers) {
  const double usual = mean_seconds(facts) + kDeviations * facts.sample_deviation *
                                                 std::sqrt(static_cast<double>(facts.samples));
  const double step =
      facts.step_seconds + reading_cost(facts, {.workers = workers, .prefetch = 1}).seconds();
  if (step <= 0) return 1;
  const double steps = std::ceil(usual / static_cast<double>(workers) / step);
  return std::clamp<int64_t>(static_cast<int64_t>(std::min(steps, 1e6)), 1, kMaxAhead);
}

}  // namespace

ReadingCost reading_cost(const ReadingFacts& facts, const Reading& reading) {
  const double all = mean_seconds(facts), cores = facts.cores;
  const auto workers = static_cast<double>(reading.workers);
  const double together = std::min(workers + 1, std::max(cores, 1.0));
  if (reading.workers == 0 || reading.prefetch == 0) return {.stall_seconds = all / together};
  // Each thread has one of `share` parts of a core, until one side is done.
  const double share = std::max(1.0, (workers + facts.threads) / cores);
  const double read = std::min(all, workers * facts.step_seconds);
  return {.stall_seconds = (all - read) / together, .slow_seconds = read / workers * (share - 1)};
}

Reading choose_reading(const ReadingFacts& facts, const Reading& asked, int64_t most_ahead) {
  const int64_t most_workers = std::max(facts.cores - 1, 0);
  const auto fixed_or = [](int64_t value, int64_t otherwise) {
    return value == kAuto ? otherwise : value;
  };
  if (facts.sample_seconds <= 0) {
    const int64_t workers = fixed_or(asked.workers, 0);
    return {workers, fixed_or(asked.prefetch, workers > 0 ? std::min<int64_t>(1, most_ahead) : 0)};
  }
  Reading best;
  double least = INFINITY;
  for (const bool is_ahead : {false, true}) {
    if (asked.prefetch != kAuto && is_ahead != (asked.prefetch > 0)) continue;
    const int64_t first = fixed_or(asked.workers, is_ahead ? 1 : 0);
    for (int64_t workers = first; workers <= fixed_or(asked.workers, std::max(most_workers, first));
         ++workers) {
      if (is_ahead && (workers == 0 || (asked.prefetch == kAuto && most_ahead < 1))) continue;
      const int64_t ahead =
          !is_ahead
              ? 0
              : fixed_or(asked.prefetch, std::min(steps_to_cover(facts, workers), most_ahead));
      const Reading one{workers, ahead};
      const double seconds = facts.step_seconds + reading_cost(facts, one).seconds();
      if (seconds >= kWorthwhile * least) continue;
      best = one;
      least = seconds;
    }
  }
  return best;
}

}  // namespace hanji::plan
