#include "hanji/report/slow_ranks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "hanji/plan/pipeline_plan.h"
#include "hanji/report/statistics.h"
#include "hanji/report/step_lines.h"

namespace hanji::report {
namespace {

constexpr double kErrors = 4.5;          // One of 64 ranks by chance: twice in ten thousand runs.
constexpr double kMinExcess = 0.005;     // Less is nobody's fault,
constexpr double kMinBesidePlan = 0.05;  // beside predictions alone.
constexpr double kToDeviation = 1.4826;  // From the median absolute deviation; normal.
constexpr double kOfMedian = 1.2533;     // Its standard error over that of the mean.

/// Seconds of the stages of each rank along "pp" in a forward and backward.
std::vector<double> work_of_stages(const plan::Plan& plan) {
  std::vector<double> work(plan.mesh.degree("pp"), 0);
  if (work.size() == 1) return {1};
  const auto times = plan::stage_times(plan.model, plan.times, plan::stages_of(plan), 1);
  const std::vector<int> ranks = plan::ranks_of_stages(plan);
  for (size_t i = 0; i < times.size(); ++i) work[ranks[i]] += times[i].whole();
  return work;
}

double own_seconds(const StepParts& rank) { return rank.compute - stolen_seconds(rank); }

/// By which lines follow each other are alike, as a factor of the number of lines that are worth one.
double lines_of_one(const std::vector<double>& values, double middle) {
  double both = 0, own = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    own += std::pow(values[i] - middle, 2);
    if (i > 0) both += (values[i] - middle) * (values[i - 1] - middle);
  }
  const double rho = own > 0 ? std::clamp(both / own, 0.0, 0.95) : 0;
  return (1 + rho) / (1 - rho);
}

class Excesses {
 public:
  Excesses(const plan::Plan& plan, const std::vector<LineParts>& lines)
      : lines_(lines), work_(planned_work(plan)) {
    for (const StepParts& one : lines.front().ranks) {
      stages_.push_back(plan.mesh.coordinate(one.rank, "pp"));
    }
  }

  std::optional<SlowRank> of(size_t index) const {
    const std::vector<size_t> peers = peers_of(index);
    if (peers.empty()) return std::nullopt;
    std::vector<double> values;
    for (const LineParts& line : lines_) values.push_back(excess(line, index, peers));
    const double middle = median(values);
    std::vector<double> apart;
    for (const double one : values) apart.push_back(std::abs(one - middle));
    const double worth = static_cast<double>(values.size()) / lines_of_one(values, middle);
    const double error = kOfMedian * kToDeviation * median(apart) / std::sqrt(worth);
    const bool has_peers = stages_[peers[0]] == stages_[index];
    const double least = std::max(has_peers ? kMinExcess : kMinBesidePlan, kErrors * error);
    return middle > least ? std::optional(SlowRank{index, middle}) : std::nullopt;
  }

 private:
  std::vector<size_t> peers_of(size_t index) const {
    std::vector<size_t> of_stage, others;
    for (size_t i = 0; i < stages_.size(); ++i) {
      if (i == index) continue;
      others.push_back(i);
      if (stages_[i] == stages_[index]) of_stage.push_back(i);
    }
    return of_stage.empty() ? others : of_stage;
  }

  double excess(const LineParts& line, size_t index, const std::vector<size_t>& peers) const {
    std::vector<double> others;
    for (const size_t i : peers) others.push_back(own_seconds(line.ranks[i]) / work_[i]);
    const double usual = median(others);
    return usual > 0 ? own_seconds(line.ranks[index]) / work_[index] / usual - 1 : 0;
  }

  const std::vector<LineParts>& lines_;
  std::vector<double> work_;
  std::vector<int> stages_;
};

}  // namespace

std::vector<double> planned_work(const plan::Plan& plan) {
  const std::vector<double> stages = work_of_stages(plan);
  std::vector<double> work;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const auto samples = static_cast<double>(plan::share_of(plan, rank).samples.size());
    work.push_back(samples * stages[plan.mesh.coordinate(rank, "pp")]);
  }
  const double mean = std::reduce(work.begin(), work.end()) / static_cast<double>(work.size());
  for (double& one : work) one = mean > 0 ? one / mean : 1;
  return work;
}

std::vector<SlowRank> slow_ranks(const plan::Plan& plan, const std::vector<LineParts>& lines) {
  std::vector<SlowRank> slow;
  if (lines.empty()) return slow;
  const Excesses excesses(plan, lines);
  for (size_t i = 0; i < lines.front().ranks.size(); ++i) {
    if (const auto one = excesses.of(i)) slow.push_back(*one);
  }
  std::ranges::stable_sort(slow, std::greater(), &SlowRank::excess);
  return slow;
}

double stolen_seconds(const StepParts& rank) {
  return rank.cpu < kLeastCpuShare * rank.compute ? rank.compute - rank.cpu : 0;
}

}  // namespace hanji::report
